//! Words around a name that tell an address from a mention. Lower case, without diacritics; each list
//! is separated by spaces.

/// Words that may precede a name at the beginning of an utterance.
pub(crate) const GREETINGS: &str = "\
    hi hey hello ok okay so well and now thanks please yes no good morning afternoon evening \
    thank you hallo guten morgen tag abend danke also und bonjour salut bonsoir merci alors et \
    hola buenos buenas dias tardes noches gracias ciao buongiorno grazie ola bom dia";

/// Words after a name at the beginning with which the utterance speaks about its bearer.
pub(crate) const STATEMENT_WORDS: &str = "\
    said says told tells thinks thought wants wanted went goes asked asks knows knew made makes \
    wrote writes sent sends gave gives and or from who whose already also always never just \
    works worked needs needed likes liked seems seemed mentioned suggested explained joined left \
    came comes took takes got gets found finds believes hat sagte meinte sagt meint und oder \
    wollte ging kam dit disait pense veut dijo dice quiere piensa";

/// Verbs that begin a question or a statement about the bearer of the name before them.
pub(crate) const AMBIGUOUS_WORDS: &str = "\
    is was has had will would can could should shall may might must does did do are were have \
    isnt wasnt hasnt wont cant ist war wird kann soll muss est etait peut va es era puede ha puo \
    pode";

/// Pronouns that turn an ambiguous verb into a request.
pub(crate) const ADDRESSEE_WORDS: &str = "\
    you your we i us du sie ihr wir ich tu vous nous je usted puedes puoi voce";

/// Words before a name at the end of which the name is the object.
pub(crate) const OBJECT_WORDS: &str = "\
    to with from about for of by than and or ask asked tell told meet met call called is was \
    named saw see like at on as not my our the a an this that help helped let invite invited \
    trust thank thanked know knows say said mean means mentioned says mit von fur uber zu und \
    oder frag frage avec de pour chez et ou con para di y e";

/// Whether a list contains a word.
pub(crate) fn contains(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}
