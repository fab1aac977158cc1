"""Latent normalizing flows for discrete sequences."""

__version__ = "0.1.0"
