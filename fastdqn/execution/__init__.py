"""How a script is carried out: devices, graphs, threads, processes. Nothing here knows of losses."""
