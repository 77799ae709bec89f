"""Viterbi decoding of phones: the network's scores of each frame become phones that last some
frames. The phone of a frame is decided LOOKAHEAD_FRAMES later (bounded lookahead)."""

import numpy as np

LOOKAHEAD_FRAMES = 5


def viterbi_path(scores, transitions, min_frames):
    """The class of each frame. `scores`: [frames, classes]; `transitions`: [from, to]; both are
    logarithms. `min_frames`: the minimum duration of each class, in frames."""
    frames, classes = scores.shape
    depth = int(min_frames.max())
    # state[k, c] is the score of the best path that ends in the k-th frame of class c. The last
    # state of a class, min_frames - 1, also represents all later frames.
    state = np.full((depth, classes), -np.inf)
    state[0] = scores[0]
    every, last = np.arange(classes), min_frames - 1
    backpointers, path = [], []
    leave_scores = transitions - np.diag(np.full(classes, np.inf))
    for t in range(1, frames):
        end_scores = state[last, every]
        enter_scores = end_scores[:, None] + leave_scores
        source = enter_scores.argmax(0)
        new_state = np.full_like(state, -np.inf)
        pointers = np.zeros((depth, classes), int)
        new_state[0], pointers[0] = enter_scores[source, every], last[source] * classes + source
        for k in range(1, depth):
            new_state[k], pointers[k] = state[k - 1], (k - 1) * classes + every
        stay_scores = end_scores + np.diag(transitions)
        stays = stay_scores > new_state[last, every]
        new_state[last[stays], every[stays]] = stay_scores[stays]
        pointers[last[stays], every[stays]] = last[stays] * classes + every[stays]
        # A class has min_frames states.
        for k in range(depth):
            new_state[k, min_frames <= k] = -np.inf
        state = new_state + scores[t]
        state -= state.max()
        backpointers.append(pointers.ravel())
        if t >= LOOKAHEAD_FRAMES:
            best = int(np.argmax(state))
            recent = backpointers[: -LOOKAHEAD_FRAMES - 1 : -1] if LOOKAHEAD_FRAMES else []
            for previous in recent:
                best = previous[best]
            path.append(best % classes)
    # The last frames, in reverse order.
    best, rest = int(np.argmax(state)), []
    for n in range(min(LOOKAHEAD_FRAMES, frames)):
        rest.append(best % classes)
        if n < len(backpointers):
            best = backpointers[-1 - n][best]
    return np.array(path + rest[::-1])[:frames]
