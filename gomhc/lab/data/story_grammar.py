"""Short stories from a seeded grammar: a corpus that needs no download.

A story has a hero, a wish, a mishap, a turn and an ending. Names, things and places are drawn once per story and recur in
it, so that a model has something to remember.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

HEROES = (
    ("Anna", "girl", "she"), ("Bella", "girl", "she"), ("Clara", "girl", "she"), ("Dora", "girl", "she"),
    ("Ella", "girl", "she"), ("Freya", "girl", "she"), ("Grace", "girl", "she"), ("Hana", "girl", "she"),
    ("Adam", "boy", "he"), ("Bruno", "boy", "he"), ("Carl", "boy", "he"), ("David", "boy", "he"),
    ("Emil", "boy", "he"), ("Felix", "boy", "he"), ("Georg", "boy", "he"), ("Hugo", "boy", "he"),
    ("Pip", "rabbit", "he"), ("Momo", "mouse", "she"), ("Rolo", "fox", "he"), ("Tilly", "duck", "she"),
    ("Oskar", "bear", "he"), ("Nell", "owl", "she"), ("Basil", "hedgehog", "he"), ("Wren", "squirrel", "she"),
)  # fmt: skip
FRIENDS = (
    "Mia", "Leo", "Nina", "Tom", "Zoe", "Max", "Ida", "Ben", "the old gardener", "the baker", "the ferryman", "Grandmother",
)  # fmt: skip
TRAITS = ("little", "curious", "shy", "brave", "cheerful", "quiet", "clever", "kind", "sleepy", "stubborn")
PLACES = (
    "by the sea", "near a deep forest", "at the edge of a village", "beside a slow river", "on a green hill",
    "in a small wooden house", "under an old oak tree", "in a town with narrow streets",
)  # fmt: skip
SCENES = (
    "in the garden",
    "at the pond",
    "on the hill",
    "behind the barn",
    "in the market",
    "by the bridge",
    "in the woods",
)
COLOURS = ("red", "blue", "yellow", "green", "silver", "striped", "tiny", "round")
THINGS = ("kite", "ball", "boat", "drum", "lantern", "scarf", "bell", "hat", "wagon", "whistle", "kettle", "basket")
WEATHERS = ("sunny", "windy", "cold", "foggy", "bright", "rainy", "warm")
DISHES = ("a plum cake", "a pot of soup", "warm bread", "apple pie", "pancakes with honey")
SKILLS = (
    "swim",
    "whistle a tune",
    "climb the tall tree",
    "ride a bicycle",
    "bake bread",
    "paint a bird",
    "count to a hundred",
)
FEARS = ("the dark", "thunder", "the big dog", "the cellar", "deep water", "the noisy mill")
MORALS = (
    "{Hero} had learned that asking for help is not a weakness.",
    "From then on, {hero} always looked twice before {he} gave up.",
    "And {hero} knew that a friend is worth more than silver and gold.",
    "That night {hero} fell asleep with a smile.",
    "{Hero} never forgot that day.",
    "And whenever it was {weather}, {hero} thought of it again.",
)

OPENINGS = (
    "Once upon a time there was a {trait} {kind} named {hero}. {He} lived {place}.",
    "{Hero} was a {trait} {kind} who lived {place}.",
    "There once lived a {trait} {kind} {place}. {His} name was {hero}.",
)
PLOTS = (
    (
        "{Hero} had a {colour} {thing} and took it everywhere. One {weather} day, {he} went to play {scene}.",
        "Suddenly the {thing} was gone. {Hero} looked under the leaves and behind every stone, but {he} could not find it.",
        '"Why are you so sad?" asked {friend}. "I have lost my {thing}," said {hero}. "Then let us look together," said {friend}.',
        "They walked back the way {hero} had come. There, {scene}, {friend} saw something {colour}. It was the {thing}!",
        '{Hero} laughed and hugged {friend}. "Thank you," {he} said, and they played until the sun went down.',
    ),
    (
        "{Hero} wanted to learn to {skill}. Every morning {he} tried, and every morning it went wrong.",
        '"I will never {skill}," said {hero}, and {he} sat down {scene} and cried.',
        'Then {friend} came by. "I could not {skill} at first either," said {friend}. "Try it slowly, one step after another."',
        "So {hero} tried again, slowly this time. {He} failed once, and {he} failed twice, but {he} did not stop.",
        "On the third {weather} day {hero} could {skill}. {Friend} clapped and shouted for joy.",
    ),
    (
        "{Hero} was afraid of {fear}. When {his} friends went out to play {scene}, {he} stayed at home.",
        "One {weather} evening, {friend} did not come home. Everyone was worried, but nobody dared to go out because of {fear}.",
        '{Hero} took a {colour} lantern in {his} hand. "I am afraid," {he} said, "but {friend} needs me."',
        "{He} went on and on, and {his} heart beat fast. At last {he} found {friend} {scene}, cold and tired.",
        'They went home together. "You are the bravest {kind} I know," said {friend}.',
    ),
    (
        "One {weather} morning {hero} made {dish}. It smelled so good that {he} wanted to eat it all alone.",
        "But {scene} {he} met {friend}, who had not eaten for a whole day.",
        '{Hero} looked at the food, and {he} looked at {friend}. "It is mine," {he} thought, and walked on.',
        "After a few steps {he} stopped. {His} feet felt heavy. {He} turned around and gave {friend} the bigger half.",
        'They sat in the grass and ate. "It tastes better with you," said {hero}, and it was true.',
    ),
    (
        "{Hero} and {friend} both wanted the {colour} {thing} that lay {scene}.",
        '"I saw it first!" said {hero}. "No, I did!" said {friend}. They pulled and pulled until the {thing} broke in two.',
        "Now nobody had a {thing}, and nobody was happy. {Hero} went home and could not sleep.",
        "The next day it was {weather}. {Hero} took glue and string and mended the {thing}, and {he} carried it to {friend}.",
        '"It is for both of us," said {hero}. {Friend} smiled, and from that day on they shared it.',
    ),
    (
        "One {weather} day {hero} found a {colour} {thing} {scene}. It was the most beautiful {thing} {he} had ever seen.",
        '{He} wanted to keep it. But then {he} saw {friend}, who was searching everywhere. "Have you seen my {thing}?" asked {friend}.',
        '{Hero} hid it behind {his} back. "No," {he} said. But {his} ears grew hot, and {he} felt bad.',
        'At last {he} held it out. "Here it is," {he} said. "I am sorry that I did not tell the truth."',
        '{Friend} was not angry. "Thank you for giving it back," said {friend}. "Do you want to play with it together?"',
    ),
)  # fmt: skip
ENDINGS = (
    "{moral}",
    "{moral} The end.",
    "When {hero} came home, on the table stood {dish}. {moral}",
)


def fill(text: str, words: dict[str, str]) -> str:
    """Replace each {name} by its word; a capitalized {Name} capitalizes the word."""
    return re.sub(r"\{(\w+)\}", lambda match: _word(match[1], words), text)


def _word(name: str, words: dict[str, str]) -> str:
    if name in words:
        return words[name]
    word = words[name.lower()]
    return word[0].upper() + word[1:]


def story(draw: random.Random) -> str:
    """Return one story of about five hundred characters, one paragraph per line."""
    hero, kind, pronoun = draw.choice(HEROES)
    words = {
        "hero": hero,
        "kind": kind,
        "he": pronoun,
        "his": {"he": "his", "she": "her"}[pronoun],
        "friend": draw.choice(FRIENDS),
        "colour": draw.choice(COLOURS),
        "trait": draw.choice(TRAITS),
        "place": draw.choice(PLACES),
        "scene": draw.choice(SCENES),
        "thing": draw.choice(THINGS),
        "weather": draw.choice(WEATHERS),
        "dish": draw.choice(DISHES),
        "skill": draw.choice(SKILLS),
        "fear": draw.choice(FEARS),
    }
    words["moral"] = fill(draw.choice(MORALS), words)
    wish, mishap, turn, way, close = draw.choice(PLOTS)
    paragraphs = (f"{draw.choice(OPENINGS)} {wish}", f"{mishap} {turn}", f"{way} {close}", draw.choice(ENDINGS))
    return "\n".join(fill(paragraph, words) for paragraph in paragraphs)


def stories(count: int, seed: int = 0) -> Iterator[str]:
    """Yield the first `count` stories of a seed."""
    draw = random.Random(seed)
    for _ in range(count):
        yield story(draw)
