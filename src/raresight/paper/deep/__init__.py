"""The paper's experiments with nets: what is trained, training it many at a time, and what came out.

Training needs numpy, torch and safetensors alone and is resumable: `python -m raresight.paper.deep --help`.
Tables and figures are written from its journals by `raresight paper table2` and the others.
"""
