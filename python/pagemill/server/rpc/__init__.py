"""The calls of the HTTP API over gRPC (`--grpc-port`), on a port of their own."""
