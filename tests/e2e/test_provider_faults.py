"""Every fault of every provider, in a call each: the turn ends with speech, `warnings` explains the
fault, nothing leaks, and the call goes on."""

import asyncio
import dataclasses

import pytest

from kit import provider_call, providers, scripted_stt
from kit.providers.transcription import Utterance
from kit.typed_call import FAST_VOICE
from kit.webrtc_client import run_async

pytestmark = pytest.mark.long("providers")

QUESTION = "What do visitors see in the first room?"
RETRY = "Tell me about the garden behind the house."
ANSWER = "Visitors see many old clocks. It is open every day."
SPARE = "This answer comes from another model."
APOLOGY = "Sorry, I cannot think at the moment."
#: Calls that run side by side.
PARALLEL_CALLS = 3


@dataclasses.dataclass
class Case:
    """A fault, and what it leads to. `warns`: words of the line in `warnings` about it; None = the
    fault is repaired, and nobody is told."""

    kind: str
    warns: str | None
    options: dict = dataclasses.field(default_factory=dict)
    #: Speech-to-text: whether the words are exactly those of the user.
    exact: bool = False
    #: Language models: whether another answer is given in place of the vendor's.
    replaced: bool = True

    def __str__(self):
        return self.kind + "".join(f" {k}={v}" for k, v in self.options.items())


REFUSED = [
    Case("401", "API key"),
    Case("402", "no credit left"),
    Case("429", "at its limit", {"retry_after": 30.0}),
    Case("500", "500"),
]
IN_BAND = [
    Case("refused_in_band", "API key"),
    Case("no_credit_in_band", "no credit left"),
    Case("busy_in_band", "at its limit"),
]
STT_CASES = [
    *REFUSED,
    Case("stall", "no transcript"),
    Case("malformed", "no transcript", {"after": 0}),
    Case("binary", "no transcript", {"after": 0}),
    Case("malformed", "transcript", {"after": 1}),
    Case("binary", "transcript", {"after": 1}),
    Case("cut", "failed", {"after": 2}),
    Case("close", "closed the connection", {"after": 2}),
    Case("cut", None, {"after": 2, "times": 1}, exact=True),
    Case("close", None, {"after": 2, "times": 1}, exact=True),
    Case("endless", "no final transcript", {"after": 3}),
    Case("slow", None, {"seconds": 0.6}, exact=True),
    Case("no_final", "no final transcript"),
    Case("late_final", None, {"seconds": 1.2}),
    Case("double_final", None, exact=True),
    Case("empty_final", None),
]
LLM_CASES = [
    *REFUSED,
    Case("stall", "in time"),
    Case("failed_in_band", "overloaded"),
    Case("malformed", "", {"after": 0}),
    Case("binary", "", {"after": 0}),
    Case("cut", "", {"after": 1}),
    Case("close", "", {"after": 1}),
    Case("slow", None, {"seconds": 1.0}, replaced=False),
    Case("cut", "", {"after": 9}, replaced=False),
    Case("close", "", {"after": 9}, replaced=False),
]
TTS_CASES = [
    *REFUSED,
    *IN_BAND,
    Case("stall", "no sound"),
    Case("malformed", "", {"after": 0}),
    Case("binary", "", {"after": 0}),
    Case("no_sound", ""),
    Case("cut", "", {"after": 2}),
    Case("close", "", {"after": 2}),
    # Most of it sounds before it counts as endless.
    Case("endless", "more sound", {"after": 1}),
    Case("cut", None, {"after": 0, "times": 1}),
    Case("slow", None, {"seconds": 1.0, "after": 0}),
    Case("odd_bytes", None),
    Case("no_alignment", None),
    Case("no_end", None),
]


async def run_cases(cases: list[Case], run) -> dict[str, dict]:
    """What `run(case)` returns, for each case; `problems` lists what is wrong."""
    limit = asyncio.Semaphore(PARALLEL_CALLS)

    async def one(case: Case) -> dict:
        async with limit:
            try:
                return await run(case)
            except AssertionError as error:
                return {"problems": [str(error)]}

    return dict(zip(map(str, cases), await asyncio.gather(*map(one, cases)), strict=True))


def check(report, name: str, found: dict[str, dict]):
    report.add(f"faults of {name}", found)
    wrong = {case: outcome for case, outcome in found.items() if outcome["problems"]}
    assert not wrong, "\n".join(f"{name}, {case}: {outcome}" for case, outcome in wrong.items())


async def hold_call(server, agent, talk) -> tuple[dict, dict, provider_call.SpokenCall]:
    """A call of an agent, and its record."""
    conversation = await asyncio.to_thread(server.create_conversation, agent["id"])
    client = await provider_call.SpokenCall(server, conversation).connect()
    try:
        await talk(client)
    finally:
        await client.hang_up()
    record = await asyncio.to_thread(server.wait_for, conversation["id"], "ENDED")
    return conversation, record, client


def warning_problems(case: Case, vendor: str, warnings: list[str]) -> list[str]:
    if case.warns is None:
        return [f"nothing is to be told: {warnings}"] if warnings else []
    about = [line for line in warnings if vendor in line]
    if not about:
        return [f"no line names {vendor}: {warnings}"]
    if len(about) > 2:
        return [f"many lines: {warnings}"]
    if not all(line.endswith(".") and case.warns in about[0] for line in about):
        return [f"no sentence with {case.warns!r}: {warnings}"]
    return []


def common_problems(server, fakes, agent, conversation) -> list[str]:
    try:
        provider_call.check_secrets(server, fakes, agent, conversation)
        provider_call.check_protocols(fakes)
    except AssertionError as error:
        return [str(error)]
    return []


@pytest.mark.parametrize(
    "kind", [providers.DeepgramFake, providers.AssemblyAiFake], ids=lambda kind: kind.provider
)
def test_faults_of_speech_to_text(server, vendor, report, kind):
    """Two spoken questions. Both are answered, whatever happens to the first one."""
    cases = [case for case in STT_CASES if case.kind in kind.own_faults | providers.FAULTS]
    cases += [case for case in IN_BAND if case.kind in kind.own_faults]

    async def run(case: Case) -> dict:
        stt = vendor(kind, [Utterance.spoken(QUESTION), Utterance.spoken(RETRY)])
        llm = vendor(providers.OpenAiFake, lambda question: ANSWER, tokens_per_second=200)
        stt.fail(case.kind, **case.options)
        agent = await asyncio.to_thread(
            provider_call.create_agent,
            server,
            stt=stt,
            llm=provider_call.choice(llm, model="a-model"),
            tts=FAST_VOICE,
        )
        understood = []

        async def talk(client):
            if case.kind == "empty_final":
                # Nobody said anything, says the vendor.
                client.play(QUESTION)
                stopped = "user.stopped_speaking"
                await client.wait_for(lambda: client.times_of(stopped), what=stopped)
            else:
                understood.append(await client.say(QUESTION))
                await client.wait_for_utterance(ANSWER)
            count = len(client.utterances())
            understood.append(await client.say(RETRY))
            await client.wait_for(
                lambda: ANSWER in client.utterances()[count:], what="a second answer"
            )

        conversation, record, _ = await hold_call(server, agent, talk)
        problems = warning_problems(case, kind.vendor, record["warnings"])
        if case.exact and understood != [QUESTION, RETRY]:
            problems.append("other words were understood")
        await asyncio.to_thread(stt.wait_for, lambda: stt.open_count() == 0, "the end")
        problems += common_problems(server, [stt, llm], agent, conversation)
        return {
            "problems": problems,
            "understood": understood,
            "warnings": record["warnings"],
            "connections": len(stt.records),
        }

    check(report, kind.vendor, run_async(run_cases(cases, run)))


def create_typed_agent(server, llm: dict, tts=FAST_VOICE) -> dict:
    stt = {"provider": "script", "model": scripted_stt.stt_script([])}
    return provider_call.create_agent(
        server, stt=stt, llm=llm, tts=tts, config={"error_message": APOLOGY}
    )


@pytest.mark.parametrize("with_fallback", [True, False], ids=["fallback", "alone"])
@pytest.mark.parametrize(
    "kind", [providers.AnthropicFake, providers.OpenAiFake], ids=lambda kind: kind.provider
)
def test_faults_of_language_models(server, vendor, report, kind, with_fallback):
    """Two typed questions. Another model answers in place of a failed one, unless a part of the
    answer was spoken; without another one the call apologizes."""

    async def run(case: Case) -> dict:
        llm = vendor(kind, lambda question: ANSWER)
        spare_kind = next(
            other for other in (providers.OpenAiFake, providers.AnthropicFake) if other != kind
        )
        spare = vendor(spare_kind, lambda question: SPARE, needs_key=False)
        llm.fail(case.kind, **case.options)
        fallback = (
            {"fallback": [provider_call.fallback(spare, model="another-model")]}
            if with_fallback
            else {}
        )
        choice = provider_call.choice(llm, model="a-model", **fallback)
        agent = await asyncio.to_thread(create_typed_agent, server, choice)
        replacement = SPARE if with_fallback else APOLOGY

        async def talk(client):
            if case.warns is None:
                await client.ask(QUESTION, ANSWER)
            elif case.replaced:
                await client.ask(QUESTION, replacement)
            else:
                # What was spoken stays; then the call apologizes.
                await client.ask(QUESTION, APOLOGY)
            llm.recover()
            count = len(client.utterances())
            client.send_typed(RETRY)
            await client.wait_for(lambda: len(client.utterances()) > count, what="an answer")

        conversation, record, client = await hold_call(server, agent, talk)
        problems = warning_problems(case, kind.vendor, record["warnings"])
        problems += common_problems(server, [llm, spare], agent, conversation)
        return {
            "problems": problems,
            "utterances": client.utterances(),
            "warnings": record["warnings"],
            "requests": len(llm.messages()),
        }

    name = f"{kind.vendor}, {'with a fallback' if with_fallback else 'alone'}"
    check(report, name, run_async(run_cases(LLM_CASES, run)))


@pytest.mark.parametrize(
    "kind", [providers.ElevenLabsFake, providers.CartesiaFake], ids=lambda kind: kind.provider
)
def test_faults_of_text_to_speech(server, vendor, report, kind):
    """Two typed questions. The answers are spoken whole, by a built-in voice where the vendor
    fails."""
    cases = TTS_CASES
    if "failed_in_band" in kind.own_faults:
        cases = [*cases, Case("failed_in_band", "500")]

    async def run(case: Case) -> dict:
        llm = vendor(providers.OpenAiFake, lambda question: ANSWER, tokens_per_second=200)
        tts = vendor(kind)
        tts.fail(case.kind, **case.options)
        choice = provider_call.choice(llm, model="a-model")
        agent = await asyncio.to_thread(create_typed_agent, server, choice, tts)

        async def talk(client):
            await client.ask(QUESTION, ANSWER.split(". ")[1])
            count = len(client.utterances())
            client.send_typed(RETRY)
            await client.wait_for(lambda: len(client.utterances()) > count, what="an answer")

        conversation, record, client = await hold_call(server, agent, talk)
        problems = warning_problems(case, kind.vendor, record["warnings"])
        if client.utterances() != [ANSWER, ANSWER]:
            problems.append("the answers were not spoken whole")
        await asyncio.to_thread(tts.wait_for, lambda: tts.open_count() == 0, "the end")
        problems += common_problems(server, [llm, tts], agent, conversation)
        return {
            "problems": problems,
            "utterances": client.utterances(),
            "warnings": record["warnings"],
            "connections": len(tts.records),
            "spoken": tts.spoken,
        }

    check(report, kind.vendor, run_async(run_cases(cases, run)))
