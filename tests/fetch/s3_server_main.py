"""Run by the S3 server's own environment: moto's server with one bucket, where each request is checked.

It computes the signature that a request should have by botocore's code, and asks the policy of the key's owner.
Prints a line of JSON (url, access_key_id, secret_access_key) once it serves, and ends with its standard input.
"""

from __future__ import annotations

import json
import sys
import urllib.request

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "models.eu"
READ = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/*"}


def main() -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    anybody = {"endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    iam = boto3.client("iam", **anybody)
    iam.create_user(UserName="reader")
    policy = json.dumps({"Version": "2012-10-17", "Statement": [READ]})
    iam.put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=policy)
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    s3 = boto3.client("s3", **anybody)
    s3.create_bucket(Bucket=BUCKET)
    for name in sys.argv[1:]:
        s3.put_object(Bucket=BUCKET, Key=name, Body=sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))
    # From now on nobody is let in without a signature.
    order = urllib.request.Request(f"{url}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"})
    urllib.request.urlopen(order).close()
    told = {"url": url, "access_key_id": key["AccessKeyId"], "secret_access_key": key["SecretAccessKey"]}
    print(json.dumps(told), flush=True)
    sys.stdin.buffer.read()
    server.stop()


if __name__ == "__main__":
    main()
