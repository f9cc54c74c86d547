"""The HTTP server below the application: sockets, connections, their bounds."""
