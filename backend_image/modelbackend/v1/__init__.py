"""The protocol between the operator, the server and its clients; generated from backend_image/proto."""
