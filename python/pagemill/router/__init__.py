"""`pagemill route`: passes requests on to several servers. docs/routing.md."""
