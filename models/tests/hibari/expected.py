#!/usr/bin/env python3
"""Writes expected.json: the phonemes that the reference code has for some sentences, and the number
of samples that it makes of them.

    python3 models/tests/hibari/expected.py > models/tests/hibari/expected.json

The reference is the package hibari-tts (Apache-2.0). The script creates a virtual environment in a
temporary folder and installs the package from PyPI.
"""

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

REQUIREMENTS = ["hibari-tts==0.2.1", "numpy==2.4.6", "onnxruntime==1.31.1"]
# Sentences that the reference and the module read in the same words. The module reads some
# quantities, times and addresses in other words, as people do.
SENTENCES = """
Hello, how are you today?
I read the book yesterday, and I will read it again tomorrow.
They live in a small town, and the concert was live.
We used to use the old record player.
Please record the live show, it will set a new record.
The wind was strong, so we had to wind the clock.
She is close to the door; please close it.
I refuse to carry the refuse.
The present is here to present the award.
Can you lead the way to the lead mine?
It's a well-known fact that cats don't like water.
I can't believe you're here, we've been waiting for hours!
The dogs' toys and Paul's shoes are in the hall.
He walked, stopped, and started running again.
The boxes, churches, and cities were painted.
An apple a day keeps the doctor away.
The end of the hour is the only option.
I want to eat, to drink, and to sleep.
Our GPU costs more than the whole PC.
NASA and the FBI are in the USA.
Mr. Smith and Mrs. Jones met Dr. Brown.
This is what I am, that is all I am.
There were 42 people and 1,250 chairs.
In 1984, we had 21 cats.
Only 50% of the 100 tests passed.
Chapter IV is about Henry VIII.
Thank you very much, that was really helpful.
Could you send me an email with the details?
What is the weather like in London tomorrow?
My order number is four seven two nine.
He shouted (twice).
Wait... is that what you mean?
No, that is not what I meant; sorry.
She sells sea shells by the sea shore.
The invalid permit was contested by the contest winner.
Kubernetes and Postgres run on the server.
Zyxlorp met Brindlewick near Quastok.
I'd like a cup of coffee, please.
Let's go, they'll be late otherwise.
You should have told me what she'd said.
ALL of the people laughed at HIS joke.
The iPhone and the MacBook are new.
""".strip().splitlines()


def main():
    if sys.argv[1:] == ["--inside"]:
        from hibari import Hibari

        voice = Hibari()
        found = {
            sentence: {
                "phonemes": " ".join(voice.phonemize(sentence)),
                "samples": len(voice(sentence, seed=1)),
            }
            for sentence in SENTENCES
        }
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin/python"
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *REQUIREMENTS], check=True)
        subprocess.run([python, __file__, "--inside"], check=True)


if __name__ == "__main__":
    main()
