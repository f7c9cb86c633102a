"""The paper's Table 3 on public data: losses in five families of models on the ULB card-fraud table."""
