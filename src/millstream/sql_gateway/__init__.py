"""SQL gateway: runs statements of remote clients, over Flink's SQL Gateway REST protocol.

Read next: ``app`` (the endpoints), ``sessions``, ``operations``, ``results``.
"""
