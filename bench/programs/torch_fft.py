"""cuFFT through PyTorch: one to three dimensions, real and complex, sizes that are no power of two."""

import torch

torch.manual_seed(1)
x = torch.randn(8, 30, 48, device="cuda")
print("fft", torch.fft.fft(x).abs().sum().item(), torch.fft.fft(x.double()).abs().sum().item())
print("rfft2", torch.fft.rfft2(x).abs().sum().item(), torch.fft.irfft2(torch.fft.rfft2(x)).abs().sum().item())
print(
    "fftn", torch.fft.fftn(x).abs().sum().item(), torch.fft.ifftn(torch.fft.fftn(x)).real.abs().sum().item()
)
for size in (7, 97, 1000, 1 << 16):
    signal = torch.randn(4, size, device="cuda")
    print(size, torch.fft.fft(signal).abs().mean().item())
print(
    "stft",
    torch.stft(x[0, 0].repeat(64), 64, window=torch.hann_window(64, device="cuda"), return_complex=True)
    .abs()
    .mean()
    .item(),
)
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    print("side stream", torch.fft.fft2(x).abs().mean().item())
