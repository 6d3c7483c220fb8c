"""What is learnt: losses, learners, exploration. Nothing here knows of threads, processes, ranks or graphs."""
