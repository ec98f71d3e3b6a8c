"""Calls methods of the service with Debian's gRPC for Python, as told on stdin, one JSON object a line.

Arguments: the address, a FileDescriptorSet of the contract, and a token. Each line asks for one call:
{"service", "method", "stream", "request", "timeout" in seconds, optional "cancel_after" messages}. Each answer is one
line: {"messages": [...]}, and if the call failed {"error": {"code", "message", "details": [{"type", "value"}]}} too.
"""

import base64
import json
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory


def load(path):
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet()
    with open(path, "rb") as opened:
        files.ParseFromString(opened.read())
    for file in files.file:
        pool.Add(file)
    return pool


def class_of(pool, descriptor):
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


def details_of(pool, error):
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = class_of(pool, pool.FindMessageTypeByName("google.rpc.Status"))()
            status.ParseFromString(value)
            assert status.code == error.code().value[0], "the status in the details is that of the call"
            return [
                {"type": detail.type_url, "value": base64.b64encode(detail.value).decode()}
                for detail in status.details
            ]
    return []


def call(pool, channel, metadata, asked):
    method = pool.FindServiceByName(asked["service"]).FindMethodByName(asked["method"])
    request = json_format.ParseDict(asked["request"], class_of(pool, method.input_type)(), descriptor_pool=pool)
    answer_class = class_of(pool, method.output_type)
    make = channel.unary_stream if asked["stream"] else channel.unary_unary
    stub = make(
        "/%s/%s" % (asked["service"], asked["method"]),
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer_class.FromString,
    )

    def shown(message):
        return json_format.MessageToDict(message, including_default_value_fields=True, descriptor_pool=pool)

    messages = []
    try:
        answer = stub(request, metadata=metadata, timeout=asked["timeout"])
        if asked["stream"]:
            for message in answer:
                messages.append(shown(message))
                if len(messages) == asked.get("cancel_after"):
                    answer.cancel()
        else:
            messages.append(shown(answer))
        return {"messages": messages}
    except grpc.RpcError as error:
        told = {"code": error.code().value[0], "message": error.details(), "details": details_of(pool, error)}
        return {"messages": messages, "error": told}


def main():
    address, descriptors, token = sys.argv[1:]
    pool = load(descriptors)
    with grpc.insecure_channel(address) as channel:
        for line in sys.stdin:
            answer = call(pool, channel, [("authorization", "Bearer " + token)], json.loads(line))
            print(json.dumps(answer), flush=True)


main()
