#!/usr/bin/env python3
"""Writes expected.json: what reference code computes for the sentence encoder.

    python3 models/tests/sentence_encoder/expected.py > models/tests/sentence_encoder/expected.json

`tokens`: ids of texts, by the BERT tokenizer of Hugging Face's `tokenizers`. `vectors`: vectors of
sentences, by the network of BERT (arXiv:1810.04805) written in numpy with the weights of 32 bits,
each component times 10,000. `searches`: a question and passages, the best first by this reference.
The script needs the model of `make setup`. It creates a virtual environment in a temporary folder,
with numpy and tokenizers from PyPI.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

REQUIREMENTS = ["numpy==2.4.6", "tokenizers==0.23.3"]
ROOT = Path(__file__).resolve().parents[3]
MODELS = Path(os.environ.get("VISAVIS_MODELS_DIR", ROOT / ".cache/models"))
MAX_TOKENS, LAYERS, HEADS, HEAD = 128, 6, 12, 32

TOKENIZED = [
    "Hello, world!",
    "How much does shipping to São Paulo cost?",
    "unbelievably antidisestablishmentarianism",
    "don't e-mail me@example.com about $5.00 (or 50%)",
    "naïve café RÉSUMÉ Ångström ﬁne İstanbul",
    "日本語と中文 mixed with English",
    "Привет мир, как дела?",
    "नमस्ते दुनिया",
    "مرحبا بالعالم",
    "สวัสดีชาวโลก",
    "ελληνικά ΑΒΓ ς",
    "한국어 문장",
    "😀 great 👍🏽 job 🎉🎉",
    "tabs\tand\nnew lines\r\n and\u00a0no-break\u2003spaces",
    "zero\u200bwidth\u00adsoft\u0000null\ufffdreplacement",
    "“quotes” – dashes — and… ellipsis · bullet •",
    "C++ and C# and .NET 4.5 in 2024-11-26T08:30:00Z",
    "x = a^2 + b_2 ~ `code` |pipe| <tag> {brace} [bracket] \\slash",
    "½ ² ℃ № ™ ①",
    "a" * 100 + " " + "a" * 101,
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈",
    "e\u0301\u0301\u0301 o\u0308",
    "?!",
    "long " * 200,
]

SENTENCES = [
    "That is a happy person",
    "That is a happy dog",
    "What time does the next train leave?",
    "i would like to order two cups of coffee and some bread",
    "My package has not arrived yet, although it was sent two weeks ago.",
    "Refunds are paid to the card that was used for the purchase within five days.",
    "yes",
    "OK, thanks a lot, bye!",
    "Can I bring my dog?",
    "The warranty covers defects of material for 24 months. It does not cover damage by water.",
    "How do I reset my password if I no longer have access to the e-mail address?",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "42",
    "???",
    "Wo ist der nächste Bahnhof?",
    "今日は天気がいいですね",
    "😀😀😀",
    "SELECT name FROM users WHERE id = 7;",
    "asdf qwer zxcv",
    "Our office in Vienna is open from Monday to Friday between nine and five; on Saturdays, please "
    "call the number on our web site, and on Sundays and public holidays nobody is there, but you "
    "can leave a message, which we answer on the next working day.",
    "The quick brown fox jumps over the lazy dog. " * 20,
]

SEARCHES = [
    [
        "When are you open?",
        "Our shop is open from nine to six, Monday to Saturday.",
        "You find us at 12 Harbour Street, next to the station.",
        "Returns are free within thirty days.",
        "We sell bicycles and spare parts.",
    ],
    [
        "how much is delivery",
        "Shipping costs five euros; it is free for orders over fifty.",
        "Orders are sent within two working days.",
        "You can pay by card or by invoice.",
        "Our newsletter appears every month.",
    ],
    [
        "i want my money back",
        "We refund the full price if you return the product within thirty days.",
        "The price of the premium plan is twenty euros per month.",
        "The warranty covers defects for two years.",
        "Call us to change the address of a delivery.",
    ],
    [
        "can my kid come along",
        "Children under six travel for free with an adult.",
        "Dogs are allowed in the second class.",
        "The train leaves every hour from platform four.",
        "Bicycles need a ticket of their own.",
    ],
    [
        "the thing does not turn on",
        "If the device does not start, hold the power button for ten seconds.",
        "To connect the device with Wi-Fi, open the settings.",
        "The battery lasts for about eight hours.",
        "Clean the screen with a soft cloth.",
    ],
]


class Reference:
    def __init__(self):
        import numpy as np
        from tokenizers import BertWordPieceTokenizer

        folder = MODELS / "minilm"
        self.tokenizer = BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=True)
        self.tokenizer.enable_truncation(MAX_TOKENS)
        file = (folder / "model.safetensors").read_bytes()
        start = 8 + int.from_bytes(file[:8], "little")
        self.weights = {
            name: np.frombuffer(
                file, np.float32, math.prod(entry["shape"]), start + entry["data_offsets"][0]
            ).reshape(entry["shape"])
            for name, entry in json.loads(file[8:start]).items()
            if entry.get("dtype") == "F32"
        }

    def tokens(self, text):
        return self.tokenizer.encode(text).ids

    def linear(self, x, name):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / ((x * x).mean(-1, keepdims=True) + 1e-12) ** 0.5
        return x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def layer(self, x, name):
        import numpy as np

        tokens = len(x)
        query, key, value = (
            self.linear(x, f"{name}.attention.self.{part}")
            .reshape(tokens, HEADS, HEAD)
            .transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = np.exp(query @ key.transpose(0, 2, 1) / HEAD**0.5)
        context = scores / scores.sum(-1, keepdims=True) @ value
        context = context.transpose(1, 0, 2).reshape(tokens, HEADS * HEAD)
        x = x + self.linear(context, f"{name}.attention.output.dense")
        x = self.norm(x, f"{name}.attention.output.LayerNorm")
        wide = self.linear(x, f"{name}.intermediate.dense")
        wide = wide * 0.5 * (1 + np.vectorize(math.erf)(wide / 2**0.5))
        return self.norm(x + self.linear(wide, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def vector(self, text):
        ids = self.tokens(text)
        x = (
            self.weights["embeddings.word_embeddings.weight"][ids].astype(float)
            + self.weights["embeddings.position_embeddings.weight"][: len(ids)]
            + self.weights["embeddings.token_type_embeddings.weight"][0]
        )
        x = self.norm(x, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            x = self.layer(x, f"encoder.layer.{layer}")
        mean = x.mean(0)
        return mean / (mean @ mean) ** 0.5

    def ranked(self, question, *passages):
        """The question, and the passages with their cosines, the best first."""
        vector = self.vector(question)
        cosines = [(round(float(self.vector(text) @ vector), 4), text) for text in passages]
        return {"question": question, "passages": sorted(cosines, reverse=True)}


def main():
    if sys.argv[1:] == ["--inside"]:
        reference = Reference()
        found = {
            "tokens": [[text, reference.tokens(text)] for text in TOKENIZED],
            "vectors": [
                [text, [round(float(x) * 10_000) for x in reference.vector(text)]]
                for text in SENTENCES
            ],
            "searches": [reference.ranked(*texts) for texts in SEARCHES],
        }
        lines = (
            f'"{key}": [\n' + ",\n".join(json.dumps(x, ensure_ascii=False) for x in value) + "\n]"
            for key, value in found.items()
        )
        print("{\n" + ",\n".join(lines) + "\n}")
        return
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin/python"
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *REQUIREMENTS], check=True)
        subprocess.run([python, __file__, "--inside"], check=True)


if __name__ == "__main__":
    main()
