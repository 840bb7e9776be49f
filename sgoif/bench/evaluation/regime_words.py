"""Settings of a grid of regimes in words: what distinguishes one, and what all of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NOISE = {"symmetric": "sym.", "asymmetric": "pair", "class_conditional": "class-cond."}


def describe_regime(title: str, properties: Mapping[str, Any]) -> str:
    """Return what distinguishes a setting in words: its data, class balance, noise, images and training.

    Args:
        title: Title of the dataset.
        properties: What the configuration says of it.
    """
    balance = f"{properties['balance']:g} : 1" if "balance" in properties else ""
    if balance and properties["balance"] != 1:
        balance += f" {properties.get('profile', 'exponential')}"
    images = properties.get("images", {})
    positions = [f"{word} {images[word]:,}" for word in ("from", "to") if word in images]
    words = [
        balance,
        describe_noise_briefly(properties),
        f"{properties['size']:,} images" if "size" in properties else "",
        " ".join(["images", *positions]) if positions else "",
        *_training(properties.get("recipe", {})),
    ]
    return ", ".join([title, *(word for word in words if word)])


def describe_noise_briefly(properties: Mapping[str, Any]) -> str:
    """Return the noise of a setting in few words, such as "sym. 20%" or "human worse label"."""
    kind = properties["kind"]
    rate = properties.get("rate", properties.get("noise"))
    amount = f"{100 * rate:.0f}%" if rate is not None else properties.get("column", "").replace("_", " ")
    return f"{NOISE.get(kind, kind)} {amount}".strip()


def _training(recipe: Mapping[str, Any]) -> list[str]:
    """What a setting trains otherwise: epochs, network, optimiser, schedule, start."""
    words = [f"{recipe['epochs']} epochs"] if "epochs" in recipe else []
    network = short_network(str(recipe["model"])) if "model" in recipe else ""
    if "start" in recipe:
        frozen = bool(recipe["start"].get("frozen"))
        words.append(f"{'frozen' if frozen else 'fine-tuned'} {network or ('features' if frozen else '')}".strip())
    elif network:
        words.append(network)
    words += [str(recipe[key]) for key in ("optimizer", "schedule") if key in recipe]
    if set(recipe) == {"lr"}:  # beside other changes it follows from them
        words.append(f"learning rate {recipe['lr']:g}")
    return words


def short_network(name: str) -> str:
    """Return a network's name without its library and size: `timm:tf_efficientnet_lite0@96` is efficientnet_lite0."""
    return name.rsplit(":", 1)[-1].split("@", 1)[0].removeprefix("tf_")


def without_shared_words(titles: Sequence[str]) -> tuple[str, list[str]]:
    """Split descriptions into the words that all of them share, and the rest of each.

    Args:
        titles: Descriptions by `describe_regime`.

    Returns:
        What all share, joined by commas, and the rest of each in their order. Where nothing would be left of one, as
        with a single description, nothing is taken out.
    """
    words = [title.split(", ") for title in titles]
    shared = [word for word in words[0] if all(word in others for others in words)] if words else []
    rests = [", ".join(word for word in own if word not in shared) for own in words]
    return (", ".join(shared), rests) if all(rests) else ("", list(titles))
