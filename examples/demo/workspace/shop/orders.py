"""Orders and what they cost. Money is in cents."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    number: int
    cents: int
    shipping_cents: int = 490

    @property
    def total_cents(self) -> int:
        return self.cents + self.shipping_cents


def sample_orders() -> list[Order]:
    return [Order(number, cents=1000 + 250 * number) for number in range(1, 24)]
