"""Pictures packed and unpacked on the GPU by nvJPEG; spectra of sound."""

import torch
from torchvision.io import ImageReadMode, decode_jpeg, encode_jpeg

torch.manual_seed(18)
ramp = torch.linspace(0, 255, 96)
picture = torch.stack([ramp.expand(64, 96), ramp.flip(0).expand(64, 96), torch.full((64, 96), 90.0)]).to(
    torch.uint8
)
packed = encode_jpeg([picture.cuda()] * 3, quality=90)
print([each.numel() for each in packed], packed[0].device.type)
again = decode_jpeg([each.cpu() for each in packed], device="cuda")
print([(each.shape, (each.cpu().int() - picture.int()).abs().max().item() < 12) for each in again])
gray = decode_jpeg(packed[0].cpu(), mode=ImageReadMode.GRAY, device="cuda")
print(gray.shape, gray.float().mean().item())
try:
    decode_jpeg(torch.arange(100, dtype=torch.uint8), device="cuda")
except RuntimeError as error:
    print("refused", "jpeg" in str(error).lower())
sound = torch.sin(torch.linspace(0, 2000, 16_000, device="cuda"))
window = torch.hann_window(400, device="cuda")
spectrum = torch.stft(sound, 400, 160, window=window, return_complex=True)
print(spectrum.abs().argmax(0).float().mean().item(), spectrum.abs().sum().item())
back = torch.istft(spectrum, 400, 160, window=window, length=16_000)
print((back - sound).abs().max().item() < 1e-4)
