"""The network and its training, in numpy: three dense layers, the first two over several frames."""

import numpy as np

# Frames that the first layer sees around its own, and frames of the first layer that the second sees.
NEAR = (-2, -1, 0, 1, 2)
FAR = (-7, -5, -3, -1, 1, 3)
HIDDEN = (64, 80)
PAST, FUTURE = NEAR[0] + FAR[0], NEAR[-1] + FAR[-1]


class Network:
    """[frames, bands] to logits."""

    def __init__(self, bands, classes, random):
        sizes = [(bands * len(NEAR), HIDDEN[0]), (HIDDEN[0] * len(FAR), HIDDEN[1]), (HIDDEN[1], classes)]
        self.weights = [(random.standard_normal(s) * np.sqrt(2 / s[0])).astype(np.float32) for s in sizes]
        self.biases = [np.zeros(s[1], np.float32) for s in sizes]
        self.mean, self.scale = np.zeros(bands, np.float32), np.ones(bands, np.float32)

    def forward(self, x):
        """`x`: [batch, frames, bands], not yet normalised. Logits of all frames but the first -PAST and the last FUTURE."""
        x = (x - self.mean) * self.scale
        near = spread(x, NEAR)
        a = np.maximum(near @ self.weights[0] + self.biases[0], 0)
        far = spread(a, FAR)
        b = np.maximum(far @ self.weights[1] + self.biases[1], 0)
        return b @ self.weights[2] + self.biases[2], (near, a, far, b)

    def backward(self, kept, slope):
        near, a, far, b = kept
        flat = lambda m: m.reshape(-1, m.shape[-1])
        gradients = []
        gradients.append((flat(b).T @ flat(slope), flat(slope).sum(0)))
        slope = (slope @ self.weights[2].T) * (b > 0)
        gradients.append((flat(far).T @ flat(slope), flat(slope).sum(0)))
        wide = slope @ self.weights[1].T
        slope = np.zeros_like(a)
        for i, offset in enumerate(FAR):
            slope[:, offset - FAR[0] : offset - FAR[0] + wide.shape[1]] += wide[..., i * HIDDEN[0] : (i + 1) * HIDDEN[0]]
        slope *= a > 0
        gradients.append((flat(near).T @ flat(slope), flat(slope).sum(0)))
        return gradients[::-1]

    def quantise(self):
        """Its weights in 8 bits, one scale for each output; the network uses what is left of them from then on."""
        packed = []
        for i, w in enumerate(self.weights):
            scale = np.maximum(np.abs(w).max(0), 1e-8) / 127
            q = np.rint(w / scale).astype(np.int8)
            packed.append((q, scale.astype(np.float32)))
            self.weights[i] = q * scale.astype(np.float32)
        return packed


def spread(x, offsets):
    """Each frame beside those at `offsets` from it."""
    frames = x.shape[1] - (offsets[-1] - offsets[0])
    return np.concatenate([x[:, o - offsets[0] : o - offsets[0] + frames] for o in offsets], axis=2)


def softmax(logits):
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def train(network, utterances, labels, weights, random, steps, report, batch=96, span=48, rate=2e-3):
    """Adam on weighted cross entropy. `utterances`: padded by -PAST and FUTURE frames, so that labels begin at the first."""
    moments = [[np.zeros_like(p) for p in network.weights + network.biases] for _ in range(2)]
    long = [i for i, l in enumerate(labels) if len(l) > span]
    share = np.array([len(labels[i]) for i in long], float)
    share /= share.sum()
    total = 0.0
    for step in range(1, steps + 1):
        chosen = random.choice(long, batch, p=share)
        starts = [int(random.integers(0, len(labels[i]) - span)) for i in chosen]
        x = np.stack([utterances[i][s : s + span - PAST + FUTURE] for i, s in zip(chosen, starts)])
        y = np.stack([labels[i][s : s + span] for i, s in zip(chosen, starts)])
        logits, kept = network.forward(x)
        p = softmax(logits)
        weight = weights[y][..., None] / weights[y].sum()
        one = np.eye(p.shape[-1], dtype=np.float32)[y]
        total += float(-(weight[..., 0] * np.log((p * one).sum(-1) + 1e-9)).sum())
        gradients = network.backward(kept, ((p - one) * weight).astype(np.float32))
        flat = [w for w, _ in gradients] + [b for _, b in gradients]
        now = rate * 0.5 * (1 + np.cos(np.pi * step / steps)) * min(1, step / 100)
        for parameter, gradient, first, second in zip(network.weights + network.biases, flat, *moments):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            parameter -= now * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        if step % 250 == 0:
            report(f"step {step}: loss {total / 250:.4f}")
            total = 0.0
