"""Networks: a torso that turns frames into features, noisy layers, and heads that turn features into values."""
