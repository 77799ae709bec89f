"""Language models with the vendors' own clients."""

from common import refused_status


def anthropic(url: str, key: str) -> dict:
    import anthropic as sdk

    def stream(key):
        client = sdk.Anthropic(base_url=url, api_key=key, max_retries=0)
        return client.messages.stream(
            model="claude-haiku-4-5",
            max_tokens=100,
            messages=[{"role": "user", "content": "What is new?"}],
        )

    with stream(key) as events:
        deltas = list(events.text_stream)
        message = events.get_final_message()

    def with_wrong_key():
        with stream("wrong"):
            pass

    return {
        "deltas": len(deltas),
        "text": "".join(deltas),
        "whole": message.content[0].text,
        "stop_reason": message.stop_reason,
        "output_tokens": message.usage.output_tokens,
        "wrong_key": refused_status(with_wrong_key),
    }


def openai(url: str, key: str) -> dict:
    import openai as sdk

    def stream(key):
        client = sdk.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        return client.chat.completions.create(
            model="gpt-4.1-mini",
            messages=[{"role": "user", "content": "What is new?"}],
            stream=True,
            stream_options={"include_usage": True},
        )

    parts, reasons, usage = [], [], None
    for chunk in stream(key):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            parts += [choice.delta.content] if choice.delta.content else []
            reasons += [choice.finish_reason] if choice.finish_reason else []
    return {
        "deltas": len(parts),
        "text": "".join(parts),
        "finish_reasons": reasons,
        "completion_tokens": usage.completion_tokens,
        "wrong_key": refused_status(lambda: stream("wrong")),
    }


def openai_responses(url: str, key: str) -> dict:
    import openai as sdk

    def stream(key):
        client = sdk.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        return client.responses.stream(
            model="gpt-4.1-mini",
            instructions="Answer.",
            input=[{"role": "user", "content": "What is new?"}],
            store=False,
        )

    with stream(key) as events:
        # The client builds the answer from the events, and checks their places.
        kinds = [event.type for event in events]
        response = events.get_final_response()

    def with_wrong_key():
        with stream("wrong"):
            pass

    return {
        "kinds": list(dict.fromkeys(kinds)),
        "deltas": kinds.count("response.output_text.delta"),
        "text": response.output_text,
        "status": response.status,
        "output_tokens": response.usage.output_tokens,
        "wrong_key": refused_status(with_wrong_key),
    }


def gemini(url: str, key: str) -> dict:
    from google import genai
    from google.genai import errors, types

    def stream(key):
        # The client names no version at another address.
        options = types.HttpOptions(base_url=url, api_version="v1beta")
        client = genai.Client(api_key=key, http_options=options)
        settings = types.GenerateContentConfig(
            system_instruction="Answer.",
            max_output_tokens=100,
            thinking_config=types.ThinkingConfig(thinking_budget=0),
        )
        return list(
            client.models.generate_content_stream(
                model="gemini-2.5-flash", contents="What is new?", config=settings
            )
        )

    chunks = stream(key)
    reasons = [one.candidates[0].finish_reason for one in chunks]
    try:
        refused = stream("wrong")
    except errors.ClientError as error:
        refused = [error.code, error.status]
    return {
        "text": "".join(chunk.text or "" for chunk in chunks),
        "deltas": sum(bool(chunk.text) for chunk in chunks),
        "finish_reasons": [reason.value for reason in reasons if reason],
        "output_tokens": chunks[-1].usage_metadata.candidates_token_count,
        "wrong_key": refused,
    }
