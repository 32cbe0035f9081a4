"""One llama.cpp model behind gRPC, with a lifecycle: it loads, serves, drains and stops, and says which.

Read in this order: lifecycle.py (the server's states), plan.py (what the model evaluates next), engine.py (the
thread that owns the model), admission.py (who is let in, and when the house is empty), grpc_service.py and
control_service.py (the two doors), server.py (how it hangs together).
"""
