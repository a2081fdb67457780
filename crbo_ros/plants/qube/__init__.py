"""The Qube Servo 2: model, simulations, drivers, and the way to its start set."""
