"""What estimators share: tables, labels and class weights read, the level of probabilities, JSON values."""
