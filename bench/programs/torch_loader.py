"""A DataLoader with worker processes and pinned memory."""

import torch


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((100,), float(index))


if __name__ == "__main__":
    torch.zeros(1, device="cuda")
    loader = torch.utils.data.DataLoader(Squares(), batch_size=16, num_workers=2, pin_memory=True)
    print([batch.to("cuda", non_blocking=True).sum().item() for batch in loader])
