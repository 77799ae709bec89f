"""Pictures of an avatar in a call, compared with other pictures of it."""

import contextlib

import numpy as np


@contextlib.contextmanager
def open_luma(browser):
    """The luma of a picture, given as a data URI, in the way tests/e2e/page/instrument.js computes
    it for a video: 96 × 96."""
    context = browser.new_context()
    page = context.new_page()

    def take(picture):
        data = page.evaluate(
            """async (source) => {
              const picture = new Image();
              picture.src = source;
              await picture.decode();
              const canvas = new OffscreenCanvas(96, 96).getContext('2d');
              canvas.drawImage(picture, 0, 0, 96, 96);
              const { data } = canvas.getImageData(0, 0, 96, 96);
              const luma = (i) => (data[i] * 77 + data[i + 1] * 150 + data[i + 2] * 29) >> 8;
              return Array.from({ length: 96 * 96 }, (_, i) => luma(4 * i));
            }""",
            picture,
        )
        return np.array(data, float).reshape(96, 96)

    yield take
    context.close()


def pictures_in_call(server, call_page, agent):
    """The pictures of an agent's first two seconds of speech."""
    call_page.open(server.create_conversation(agent)["join_link"])
    call_page.capture_video()
    call_page.join()
    call_page.wait_for_event("agent.started_speaking")
    spoken = call_page.wait_for_sound(0)
    call_page.wait_until_time(spoken["from"] + 2)
    _, _, seen = call_page.captured_frames()
    assert seen[:, 58:80, 36:60].std(axis=0).max() > 3, "the lips move"
    return seen


def similarity(picture, seen):
    return np.corrcoef(picture.ravel(), seen.mean(axis=0).ravel())[0, 1]
