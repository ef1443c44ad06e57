"""fikit: run CUDA work through fikitd."""
