"""Texts that tokenizers get wrong."""

import random

SCRIPTS = {
    "Latin": "Zażółć gęślą jaźń, naïve façade, Straße, Ångström",
    "Greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "Cyrillic": "Съешь же ещё этих мягких французских булок",
    "Arabic": "نص حكيم له سر قاطع وذو شأن عظيم ١٢٣",
    "Hebrew": "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "Devanagari": "ऋषियों को सताने वाले दुष्ट राक्षसों १२३",
    "Bengali": "ধীরে ধীরে বৃষ্টি নামে ১২৩",
    "Tamil": "யாமறிந்த மொழிகளிலே தமிழ்மொழி",
    "Telugu": "దేశ భాషలందు తెలుగు లెస్స",
    "Thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "Lao": "ສະບາຍດີ ຊາວໂລກ",
    "Tibetan": "བོད་སྐད་ཡིག",
    "Georgian": "გთხოვთ ახლავე გაიაროთ რეგისტრაცია",
    "Armenian": "Բարեւ աշխարհ",
    "Amharic": "ሰላም ልዑል ዓለም",
    "Khmer": "ខ្ញុំអាចញ៉ាំកញ្ចក់បាន",
    "Burmese": "မြန်မာဘာသာ",
    "Han": "天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。",
    "Kana": "いろはにほへと チリヌルヲ ｶﾀｶﾅ",
    "Hangul": "다람쥐 헌 쳇바퀴에 타고파 한글",
    "Cherokee": "ᎣᏏᏲ ᎡᎶᎯ",
    "Gothic": "𐌼𐌰𐌲 𐌲𐌻𐌴𐍃 𐌹̈𐍄𐌰𐌽",
    "Emoji": "😀 👩‍👩‍👧‍👦 🇫🇷🇩🇪 👍🏽 ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "Math": "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β) 𝒜𝔅",
}
EDGES = [
    "", " ", "  ", "\n", "\n\n", "\r\n\r\n", "\t", "a\n\nb", "a\n\n\n b", "x   y", " \n \n ",
    "a \n", "a  ", "  a", "\u00a0a\u00a0\u00a0b", "\u3000a", "a\u2003b", "\u200b", "a\u200db",
    "١٢٣", "ﬁ", "é", "e\u0301", "don'T", "DON'T don't I'LL we'Ve 'S ' s", "'", "''s", "a's's",
    "1", "12", "123", "1234", "12345678901234567890", "3.14159e-10", "1,000,000.00", "½⅓²³",
    "٣٫١٤", "Ⅷ", "a1b2", "0x1F", "_a_b_", "__init__", "a.b.c", "...", "....", "!?!?", "——", "--",
    "http://a.b/c?d=e&f=%20#g", "C:\\a\\b", "<br/>", "&amp;", "{{x}}", "{%x%}", "\\n", "\"\"\"",
    "foo(bar[0]->baz);\n\treturn 0;\n}\n", "def f(x):\n    return x\n\n\n    y", "\x00", "\x01\x7f",
    "\ufeffx", "\ufffd", "\uffff", "\U0010ffff", "\ud7ff\ue000", "ſ K Å", "İı", "ǅ", "ß ẞ", "\u0345",
    "\u1e9b\u0323", "각 각", "क्‍ष", "a\u0300\u0301\u0302\u0303", "Zͫa͌l̎g̀o͛",
    "▁", "▁▁a", "a▁b", "Ġ", "Ċ", "ĠĠ", "Ā", "<0x41>", "<0x0A>", "<unk>", "##a",
]
LONG = [
    " " * 10_000, "\n" * 3_000, "a" * 5_000, "ab" * 3_000, "!" * 3_000, "1" * 3_000, "é" * 2_000,
    "字" * 2_000, "😀" * 500, "\t" * 2_000, " \n" * 2_000, "a " * 2_000, "\u0301" * 1_000,
    "x" + " " * 5_000 + "y", "word " * 1_500, "\r\n" * 1_500,
]


def awkward_strings(special, seed=11):
    """`special`: the literals of the tokenizer's added tokens."""
    out = list(EDGES) + list(SCRIPTS.values()) + list(LONG)
    for text in SCRIPTS.values():
        out += [" " + text, text + "\n\n", text.upper(), text.replace(" ", "  "), text[::-1]]
    for token in special[:12]:
        out += [
            token, token + token, "a" + token, token + "a", " " + token, token + " ",
            "a " + token + " b", "\n" + token + "\n", token[:-1], token[1:], token.upper(),
            f"{token}user\nhi{token}\n", "x" + token[:-1] + " " + token[-1:],
        ]
    choose = random.Random(seed)
    alphabet = [*EDGES, *(w for s in SCRIPTS.values() for w in s.split()), *special, " ", "\n"]
    for _ in range(300):
        count = choose.randint(2, 12)
        joint = choose.choice(["", " ", "\n", "  "])
        out.append(joint.join(choose.choice(alphabet) for _ in range(count)))
    return out
