"""Cuts lists into pages."""

PAGE_SIZE = 10


def page_count(items: list) -> int:
    """How many pages it takes to show all items."""
    return len(items) // PAGE_SIZE


def page(items: list, number: int) -> list:
    """The items of a page; pages count from 1."""
    start = (number - 1) * PAGE_SIZE
    return items[start : start + PAGE_SIZE]
