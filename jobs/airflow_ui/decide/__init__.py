"""Decisions on the pages: the route that takes them, and the macro `decisions.forms(place)` for their forms."""

from fastapi import APIRouter

router = APIRouter()
