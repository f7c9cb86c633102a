"""The paper's experiments with nets on images: what is trained, training it in stacks, and what came out.

Training is resumable and needs numpy, torch and safetensors alone: `python -m reproduction --train-only`.
Pages and figures are written from its journals by the same command without that option.
"""
