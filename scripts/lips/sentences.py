"""The text that the voices speak: random sentences from lists of words that contain every sound of
English at the beginning, in the middle and at the end of words."""


def split_list(text):
    """Splits a list whose items are separated by `|` or a line break."""
    return text.replace("\n", "|").split("|")


PEOPLE = split_list("""my brother|your mother|the baker|a pilot|the woman from Bombay|Bob|Abby
Peter|Sophie|Kevin|Maya|Theo|Judith|an old farmer|the nurse|our neighbour|the young chef
a good friend|everybody|the boss|a passenger|Mister Moore|Doctor Lamb|the whole family|someone
the engineer|a lawyer|the shy boy|their teacher|the painter|Hugh|George|Charlotte|a thin man
the judge|a few people|the bus driver|both of them|Vivian|Will""")

VERBS = split_list("""bought|moves|painted|will help|believes|saw|has forgotten|might prefer
took|built|is looking for|keeps|pushed|found|loves|should bring|opened|wrote about|measured
asked for|gave up|had shown|cooks|carried|wants|remembers|threw away|would change|checks
follows|broke|washes|drew|may lose|put down|pulled|covered|watches|sings about|never uses
imagined|always enjoys|cannot stop|laughed at|talked about|hopes for|rubbed|climbed over|fixed
served""")

THINGS = split_list("""a brown paper bag|the big map|five apples|some bread and butter
the blue car|a cup of coffee|the number seven|an empty box|the beautiful garden|the front door
a short film|the very first page|the phone bill|a new job|the math problem|his wooden boat
her wallet|the wrong bus|every single letter|a thick jumper|three pairs of shoes
the measure of it|the garage|a glass of juice|the choice|a heavy hammer|the telephone
two sheep|that picture|the fresh fish|an orange|the church bell|cheap food|a warm room
the yellow moon|the value of time|the top shelf|a rubber band|the far mountain|the river
her voice|a soft pillow|some money|the last chapter|the usual pleasure|a cold beer
the old bridge|the kitchen window|a loud noise|good advice|our house|the power of hope|a lamp
the empty cup|more pepper|a bowl of soup|the web page|a hub|the shop|his thumb|the lab
a job offer|the gym|a cave|the leaf|one half|this proof|my wife|the knife|a life vest|the roof
a stove|an ugly vase|the verb|the curb|a soap bubble|the tribe|a crib|the mob|wool
a young thief|the youth club|an ounce of gold""")

PLACES = split_list("""on Monday|before lunch|in the village|at half past five|for Barbara
above the shop|behind the museum|every evening|from the beginning|without a problem
with both hands|near the airport|by the pool|during the film|after the rehearsal|if possible
in the middle of May|on top of the roof|for a while|in public|as usual|through the thin wall
under the oak|over the weekend|yesterday|with the other group|about an hour ago|at home
in July|very quickly|on the way|for the first time|in a hurry|because of the weather
beneath a tree|beyond the border|up the hill|for less than a pound|with pleasure|in a bad mood""")

OPENERS = split_list("""well|of course|yes, please|no problem|maybe|perhaps|I am afraid
let me think|good morning|sure|thank you|sorry|as far as I know|to be honest|hello""")

PHRASES = split_list("""How may I help you?|What time would suit you best?
Could you tell me your name, please?|I would be happy to book a table for four.
Please give me a moment while I look that up.
Your appointment has been moved to Thursday at ten.
Is there anything else that I can do for you?|The package should arrive by Wednesday.
Would you prefer the morning or the afternoon?|I beg your pardon, could you repeat that?
We have rooms with a view of the river.|That will be fifty pounds and twelve pence.
Which of the two do you like better?|Oh boy, that is a lovely idea!
Move the mouse up a bit, and push the button.|Both of my thumbs hurt.|Why do you ask?
Put the jam above the bread box.|He used to live in a tiny flat.
She chose the huge beige sofa.|Who knew you could do that?|You pay them, and they leave.
The fog hung over the long pier.|Few of us ever saw it.""")


def random_sentence(rng):
    """One sentence, drawn by a `random.Random`."""
    pick = rng.choice
    kind = rng.random()
    if kind < 0.15:
        return pick(PHRASES)
    text = f"{pick(PEOPLE)} {pick(VERBS)} {pick(THINGS)}"
    if kind < 0.55:
        text += f" {pick(PLACES)}"
    elif kind < 0.75:
        text = f"{pick(OPENERS)}, {text}"
    elif kind < 0.9:
        text += f", and {pick(PEOPLE)} {pick(VERBS)} {pick(THINGS)}"
    else:
        text = f"did {pick(PEOPLE)} say {pick(THINGS)}, or {pick(THINGS)} {pick(PLACES)}?"
    return text[0].upper() + text[1:] + ("" if text.endswith("?") else ".")
