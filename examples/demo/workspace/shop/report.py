"""Prints all orders, page by page."""

from shop.orders import sample_orders
from shop.pages import page, page_count


def report() -> str:
    orders = sample_orders()
    lines = []
    for number in range(1, page_count(orders) + 1):
        lines.append(f"-- page {number} --")
        for order in page(orders, number):
            lines.append(f"order {order.number}: {order.total_cents / 100:.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
