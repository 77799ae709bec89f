"""The phone network and its training, in numpy: three dense layers, of which the first two combine
several frames."""

import numpy as np

# Frames that a layer combines, relative to its own: input frames for the first layer, frames of the
# first layer for the second.
FIRST_LAYER_OFFSETS = (-2, -1, 0, 1, 2)
SECOND_LAYER_OFFSETS = (-7, -5, -3, -1, 1, 3)
HIDDEN = (64, 80)
# Input frames before and after a frame that its logits depend on; PAST_FRAMES is negative.
PAST_FRAMES = FIRST_LAYER_OFFSETS[0] + SECOND_LAYER_OFFSETS[0]
FUTURE_FRAMES = FIRST_LAYER_OFFSETS[-1] + SECOND_LAYER_OFFSETS[-1]


class Network:
    """Computes logits from features [frames, bands]."""

    def __init__(self, bands, classes, rng):
        shapes = [
            (bands * len(FIRST_LAYER_OFFSETS), HIDDEN[0]),
            (HIDDEN[0] * len(SECOND_LAYER_OFFSETS), HIDDEN[1]),
            (HIDDEN[1], classes),
        ]
        self.weights = [
            (rng.standard_normal(s) * np.sqrt(2 / s[0])).astype(np.float32) for s in shapes
        ]
        self.biases = [np.zeros(s[1], np.float32) for s in shapes]
        self.mean, self.scale = np.zeros(bands, np.float32), np.ones(bands, np.float32)

    def forward(self, x):
        """The logits and the activations of the layers. `x`: [batch, frames, bands], not yet
        normalized. The first -PAST_FRAMES and the last FUTURE_FRAMES frames have no logits."""
        x = (x - self.mean) * self.scale
        first_input = stack_frames(x, FIRST_LAYER_OFFSETS)
        a = np.maximum(first_input @ self.weights[0] + self.biases[0], 0)
        second_input = stack_frames(a, SECOND_LAYER_OFFSETS)
        b = np.maximum(second_input @ self.weights[1] + self.biases[1], 0)
        return b @ self.weights[2] + self.biases[2], (first_input, a, second_input, b)

    def backward(self, activations, gradient):
        """The gradients of weights and biases, by layer. `gradient`: that of the logits."""
        first_input, a, second_input, b = activations

        def flat(m):
            return m.reshape(-1, m.shape[-1])

        gradients = []
        gradients.append((flat(b).T @ flat(gradient), flat(gradient).sum(0)))
        gradient = (gradient @ self.weights[2].T) * (b > 0)
        gradients.append((flat(second_input).T @ flat(gradient), flat(gradient).sum(0)))
        stacked = gradient @ self.weights[1].T
        gradient = np.zeros_like(a)
        for i, offset in enumerate(SECOND_LAYER_OFFSETS):
            start = offset - SECOND_LAYER_OFFSETS[0]
            gradient[:, start : start + stacked.shape[1]] += stacked[
                ..., i * HIDDEN[0] : (i + 1) * HIDDEN[0]
            ]
        gradient *= a > 0
        gradients.append((flat(first_input).T @ flat(gradient), flat(gradient).sum(0)))
        return gradients[::-1]

    def quantize(self):
        """Quantizes the weights to 8 bits with one scale for each output. The network then uses the
        quantized values. Returns the integers and the scales of each layer."""
        packed = []
        for i, w in enumerate(self.weights):
            scale = np.maximum(np.abs(w).max(0), 1e-8) / 127
            q = np.rint(w / scale).astype(np.int8)
            packed.append((q, scale.astype(np.float32)))
            self.weights[i] = q * scale.astype(np.float32)
        return packed


def stack_frames(x, offsets):
    """For each frame, the concatenation of the frames at `offsets` from it."""
    frames = x.shape[1] - (offsets[-1] - offsets[0])
    return np.concatenate([x[:, o - offsets[0] : o - offsets[0] + frames] for o in offsets], axis=2)


def softmax(logits):
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def train(network, utterances, labels, weights, rng, steps, report, batch=96, span=48, rate=2e-3):
    """Trains with Adam on weighted cross entropy. `utterances` are padded by -PAST_FRAMES and
    FUTURE_FRAMES frames, so that the labels begin with the first frame. `weights`: the weight of
    each class. `span`: the frames of an example."""
    moments = [[np.zeros_like(p) for p in network.weights + network.biases] for _ in range(2)]
    long = [i for i, label in enumerate(labels) if len(label) > span]
    share = np.array([len(labels[i]) for i in long], float)
    share /= share.sum()
    total_loss = 0.0
    for step in range(1, steps + 1):
        chosen = rng.choice(long, batch, p=share)
        starts = [int(rng.integers(0, len(labels[i]) - span)) for i in chosen]
        padded_span = span - PAST_FRAMES + FUTURE_FRAMES
        x = np.stack(
            [utterances[i][s : s + padded_span] for i, s in zip(chosen, starts, strict=True)]
        )
        y = np.stack([labels[i][s : s + span] for i, s in zip(chosen, starts, strict=True)])
        logits, activations = network.forward(x)
        p = softmax(logits)
        weight = weights[y][..., None] / weights[y].sum()
        one_hot = np.eye(p.shape[-1], dtype=np.float32)[y]
        total_loss += float(-(weight[..., 0] * np.log((p * one_hot).sum(-1) + 1e-9)).sum())
        gradients = network.backward(activations, ((p - one_hot) * weight).astype(np.float32))
        flat = [w for w, _ in gradients] + [b for _, b in gradients]
        # Cosine decay after a linear warm-up of 100 steps.
        step_rate = rate * 0.5 * (1 + np.cos(np.pi * step / steps)) * min(1, step / 100)
        parameters = network.weights + network.biases
        for parameter, gradient, first, second in zip(parameters, flat, *moments, strict=True):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            unbiased_first = first / (1 - 0.9**step)
            unbiased_second = second / (1 - 0.999**step)
            parameter -= step_rate * unbiased_first / (np.sqrt(unbiased_second) + 1e-8)
        if step % 250 == 0:
            report(f"step {step}: loss {total_loss / 250:.4f}")
            total_loss = 0.0
