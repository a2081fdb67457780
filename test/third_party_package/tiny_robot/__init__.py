"""A task, a method and a plant from outside."""
