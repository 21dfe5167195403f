"""Depth from videos without ground truth: the objective `self_supervised`, its geometry, losses and odometry."""
