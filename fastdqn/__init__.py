"""DQN and Rainbow on Atari, actor-critics and SAC: one script for each idea, with what each of them gains."""

__version__ = "0.2.0"
