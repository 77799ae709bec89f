"""Stand-ins of services that send bots into meetings. They speak the services' protocols on
loopback; nobody meets. A test decides what happens in the meeting.

- base: the HTTP server, its faults, and the delivery of webhooks
- page: the bot, its WebSockets, and its page in Chromium
- attendee, recall, meetingbaas: the services

Recordings of meetings are in `kit.meeting_audio`.
"""

from .attendee import Attendee, AttendeeBot
from .base import VALID, WRONG
from .meetingbaas import MeetingBaas, MeetingBaasBot
from .page import BotPage, open_bot_page
from .recall import Recall, RecallBot

__all__ = [
    "VALID",
    "WRONG",
    "Attendee",
    "AttendeeBot",
    "BotPage",
    "MeetingBaas",
    "MeetingBaasBot",
    "Recall",
    "RecallBot",
    "open_bot_page",
]
