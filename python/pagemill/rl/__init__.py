"""For trainers: new weights for a server on the same machine.

    from pagemill.rl import WeightSender

    sender = WeightSender("/run/pagemill/admin")
    sender.send(model.state_dict().items(), weight_version="7")

Imports neither torch nor anything of the engine.
"""

from pagemill.rl.weight_sender import SendError, WeightSender

__all__ = ["SendError", "WeightSender"]
