"""Invented knowledge that no language model can have."""

import dataclasses
import random

NAMES = [
    "Robert",
    "Michael",
    "David",
    "Richard",
    "Susan",
    "Margaret",
    "Patricia",
    "William",
    "Daniel",
    "Elizabeth",
]
NUMBERS = ["seventeen", "thirty six", "forty seven", "fifty one", "sixty eight", "ninety two"]

#: Long sentences, so that a test has time to interrupt.
LONG_TEXT = (
    "In the first room visitors see a large collection of old clocks, and every clock shows a "
    "different time because nobody\n"
    "winds them in the same order, which surprises most people. The garden behind the house "
    "has red roses, a small river, and a bridge\n"
    "made of stone, where people sit in the afternoon and listen to the water for a long time. "
    "The restaurant has soup and bread and\n"
    "fish from the river, and on every Sunday there is a large apple cake for all the children "
    "of the village. The train to the city\n"
    "leaves from the station at the end of the street every hour, and the last train at night "
    "leaves shortly before twelve. People park\n"
    "the car behind the church on the other side of the river, because the street in front of "
    "the house is much too small for cars."
)


@dataclasses.dataclass
class InventedKnowledge:
    """A text, two questions, the words that their answers must contain, and a question with a long
    answer."""

    text: str
    questions: list[str]
    answers: list[list[str]]
    long_question: str


def invent_knowledge(rng: random.Random) -> InventedKnowledge:
    name, number = rng.choice(NAMES), rng.choice(NUMBERS)
    text = (
        f"The night guard of the museum is called {name}. There are {number} silver keys in the "
        f"wooden box behind the door. {LONG_TEXT}"
    )
    return InventedKnowledge(
        text=text,
        questions=[
            "What is the name of the night guard of the museum?",
            "How many silver keys are in the wooden box?",
        ],
        answers=[[name.lower()], number.split()],
        long_question="Tell me about the garden behind the house.",
    )
