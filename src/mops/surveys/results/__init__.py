"""The results of a survey and the recommendation drawn from them."""
