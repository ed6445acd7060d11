"""Sources and sinks without a system behind them: collections, generators, sockets, print."""
