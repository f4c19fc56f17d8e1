"""Scalar functions: their signatures and what they compute. Both engines use them."""
