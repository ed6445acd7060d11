"""The lexer, and the token stream that the parser reads.

``accept`` and ``expect`` follow the grammar, so an error can list them as expected:
`RecordingTokenStream` records them, and a text is parsed with it only after it has failed.  ``at``
and ``peek`` only look ahead.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeVar

from millstream.configuration.redaction import masked_statement
from millstream.errors import SqlParserError, UnsupportedSqlError
from millstream.sql.parser.nodes import Identifier, Name, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: No names without backticks.
RESERVED: Final = _words("""
    ABS ALL ALLOCATE ALLOW ALTER AND ANY ARE ARRAY ARRAY_CONCAT_AGG ARRAY_MAX_CARDINALITY AS
    ASENSITIVE ASYMMETRIC AT ATOMIC AUTHORIZATION AVG BEGIN BEGIN_FRAME BEGIN_PARTITION BETWEEN
    BIGINT BINARY BIT BITMAP BLOB BOOLEAN BOTH BUCKETS BY BYTES CALL CALLED CARDINALITY CASCADED
    CASE CAST CATALOGS CEIL CEILING CHAR CHARACTER CHARACTER_LENGTH CHAR_LENGTH CHECK CLASSIFIER
    CLOB CLOSE COALESCE COLLATE COLLECT COLUMN COMMENT COMMIT CONDITION CONNECT CONNECTIONS
    CONSTRAINT CONTAINS CONTAINS_SUBSTR CONTINUOUS CONVERT CORR CORRESPONDING COUNT COVAR_POP
    COVAR_SAMP CREATE CROSS CUBE CUME_DIST CURRENT CURRENT_CATALOG CURRENT_DATE
    CURRENT_DEFAULT_TRANSFORM_GROUP CURRENT_PATH CURRENT_ROLE CURRENT_ROW CURRENT_SCHEMA
    CURRENT_TIME CURRENT_TIMESTAMP CURRENT_TRANSFORM_GROUP_FOR_TYPE CURRENT_USER CURSOR CYCLE
    DATABASES DATE DATETIME DATETIME_TRUNC DATE_TRUNC DAY DEALLOCATE DEC DECIMAL DECLARE DEFAULT
    DEFINE DELETE DENSE_RANK DEREF DESCRIBE DETERMINISTIC DISALLOW DISCONNECT DISTINCT
    DISTRIBUTED DISTRIBUTION DOT DOUBLE DROP DYNAMIC EACH ELEMENT ELSE EMPTY END END_FRAME
    END_PARTITION EQUALS ESCAPE EVERY EXCEPT EXEC EXECUTE EXISTS EXP EXPLAIN EXTEND EXTENDED
    EXTERNAL EXTRACT FALSE FETCH FILTER FIRST_VALUE FLOAT FLOOR FOR FOREIGN FRAME_ROW FREE
    FRESHNESS FRIDAY FROM FULL FUNCTION FUNCTIONS FUSION GET GLOBAL GRANT GROUP GROUPING GROUPS
    GROUP_CONCAT HASH HAVING HOLD HOUR IDENTITY ILIKE IMPORT IN INCLUDE INDICATOR INITIAL INNER
    INOUT INSENSITIVE INSERT INT INTEGER INTERSECT INTERSECTION INTERVAL INTO IS JOIN JSON_ARRAY
    JSON_ARRAYAGG JSON_EXISTS JSON_OBJECT JSON_OBJECTAGG JSON_QUERY JSON_SCOPE JSON_VALUE LAG
    LANGUAGE LARGE LAST_VALUE LATERAL LEAD LEADING LEFT LIKE LIKE_REGEX LIMIT LN LOCAL LOCALTIME
    LOCALTIMESTAMP LOWER MATCH MATCHES MATCH_NUMBER MATCH_RECOGNIZE MATERIALIZED MAX MEASURES
    MEMBER MERGE METHOD MIN MINUS MINUTE MOD MODELS MODIFIES MODIFY MODULE MODULES MONDAY MONTH
    MULTISET NATIONAL NATURAL NCHAR NCLOB NEW NEXT NO NONE NORMALIZE NOT NTH_VALUE NTILE NULL
    NULLIF NUMERIC OCCURRENCES_REGEX OCTET_LENGTH OF OFFSET OLD OMIT ON ONE ONLY OPEN OR ORDER
    ORDINAL OUT OUTER OVER OVERLAPS OVERLAY PARAMETER PARTITION PATTERN PER PERCENT
    PERCENTILE_CONT PERCENTILE_DISC PERCENT_RANK PERIOD PERMUTE PIVOT PORTION POSITION
    POSITION_REGEX POWER PRECEDES PRECISION PREPARE PREV PRIMARY PROCEDURE PROCEDURES QUALIFY
    QUARTERS RANGE RANK RAW READS REAL RECURSIVE REF REFERENCES REFERENCING REFRESH REFRESH_MODE
    REGR_AVGX REGR_AVGY REGR_COUNT REGR_INTERCEPT REGR_R2 REGR_SLOPE REGR_SXX REGR_SXY REGR_SYY
    RELEASE RENAME RESET RESULT RESUME RETURN RETURNS REVOKE RIGHT RLIKE ROLLBACK ROLLUP ROW
    ROWS ROW_NUMBER RUNNING SAFE_CAST SAFE_OFFSET SAFE_ORDINAL SATURDAY SAVEPOINT SCALA SCOPE
    SCROLL SEARCH SECOND SEEK SELECT SENSITIVE SEPARATOR SESSION_USER SET SHOW SIMILAR SKIP
    SMALLINT SOME SPECIFIC SPECIFICTYPE SQL SQLEXCEPTION SQLSTATE SQLWARNING SQRT START
    STATEMENT STATIC STDDEV_POP STDDEV_SAMP STREAM STRING STRING_AGG STRUCTURED SUBMULTISET
    SUBSET SUBSTRING SUBSTRING_REGEX SUCCEEDS SUM SUNDAY SUSPEND SYMMETRIC SYSTEM SYSTEM_TIME
    SYSTEM_USER TABLE TABLES TABLESAMPLE THEN THURSDAY TIME TIMESTAMP TIMESTAMP_DIFF
    TIMESTAMP_LTZ TIMESTAMP_TRUNC TIMEZONE_HOUR TIMEZONE_MINUTE TIME_DIFF TIME_TRUNC TINYINT TO
    TRAILING TRANSLATE TRANSLATE_REGEX TRANSLATION TREAT TRIGGER TRIM TRIM_ARRAY TRUE TRUNCATE
    TRY_CAST TUESDAY UESCAPE UNION UNIQUE UNKNOWN UNNEST UNPIVOT UPDATE UPPER UPSERT USE USER
    USING VALUE VALUES VALUE_OF VARBINARY VARCHAR VARIANT VARYING VAR_POP VAR_SAMP VERSIONING
    VIEWS WATERMARK WATERMARKS WEDNESDAY WEEKS WHEN WHENEVER WHERE WIDTH_BUCKET WINDOW WITH
    WITHIN WITHOUT YEAR
    """)

#: Reserved, and yet names of functions: before a parenthesis.
RESERVED_FUNCTIONS: Final = _words("""
    ABS AVG CARDINALITY CEILING CHAR CHARACTER_LENGTH CHAR_LENGTH COALESCE COLLECT COUNT
    COVAR_POP COVAR_SAMP CUME_DIST CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP DENSE_RANK
    ELEMENT EVERY EXP FIRST_VALUE FLOOR FUSION GROUPING HOUR INTERSECTION LAG LAST_VALUE LEAD
    LEFT LN LOCALTIME LOCALTIMESTAMP LOWER MAX MIN MINUTE MOD MONTH NTH_VALUE NTILE NULLIF
    OCTET_LENGTH PERCENTILE_CONT PERCENTILE_DISC PERCENT_RANK POWER RANK REGR_COUNT REGR_SXX
    REGR_SYY RIGHT ROW_NUMBER SECOND SOME SQRT STDDEV_POP STDDEV_SAMP SUM TRUNCATE UPPER USER
    VAR_POP VAR_SAMP YEAR
    """)

#: Functions that are written without parentheses.
NILADIC_FUNCTIONS: Final = _words("""
    CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME LOCALTIMESTAMP
    """)

#: Reserved, and yet columns in expressions: functions of the standard that there are none of.
COLUMN_WORDS: Final = _words("""
    CURRENT_CATALOG CURRENT_PATH CURRENT_ROLE CURRENT_SCHEMA CURRENT_USER SESSION_USER SYSTEM_USER
    USER
    """)

#: Words that begin a query.
QUERY_STARTS: Final = frozenset({"SELECT", "VALUES", "WITH", "TABLE"})


_INDENT: Final = "    "
#: How much of a line is shown, in characters: wide enough for most, narrow enough for a terminal.
_WIDTH: Final = 100


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1, of the character at this index."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def excerpt(text: str, start: int, end: int) -> str:
    """The line in which ``start`` is, indented, and carets below it as far as ``end``.

    Args:
        text: All of it.
        start: Index of the first character that is meant.
        end: Index behind the last; what lies in later lines is not marked.

    Returns:
        Two lines.  Of a long line only the part around the place is shown, and no secret.
    """
    text = masked_statement(text)
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    line = text[begin : len(text) if stop < 0 else stop].rstrip()
    at = start - begin
    width = max(1, min(end - begin, len(line)) - at)
    cut = max(0, at - _WIDTH * 2 // 3)
    shown = line[cut : cut + _WIDTH]
    before, after = "..." if cut else "", "..." if cut + _WIDTH < len(line) else ""
    padding = "".join(_blank(character) for character in line[cut:at])
    padding += " " * (at - len(line))
    width = max(1, min(width, cut + _WIDTH - at))
    marks = "".join(_blank(each).replace(" ", "^") for each in line[at : at + width]) or "^"
    return f"{_INDENT}{before}{shown}{after}\n{_INDENT}{' ' * len(before)}{padding}{marks}"


def _blank(character: str) -> str:
    """As much room as the character takes in a terminal."""
    if character == "\t":
        return "\t"
    if unicodedata.combining(character):
        return ""
    return "  " if unicodedata.east_asian_width(character) in "WF" else " "


#: In the order in which they are tried.  A start without an end is a token of its own, an error.
_TOKEN: Final = re.compile(
    r"""
      (?P<space>   \s+ | --[^\n]* | //[^\n]* | /\*(?!\+)(?:[^*]|\*(?!/))*\*/ )
    | (?P<word>    [^\W\d][\w$]* | \$[\w$]+ )
    | (?P<number>  (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)? )
    | (?P<string>  '(?:[^']|'')*' )
    | (?P<quoted>  `(?:[^`]|``)*` )
    | (?P<operator> /\*\+ | \*/ | => | <> | != | <= | >= | \|\| | \{- | -\}
                    | [-+*%=<>(),.;\[\]{}?|^$:] | /(?!\*) )
    """,
    re.VERBOSE,
)
_PREFIXED: Final = re.compile(r"([uU]&|[xX]|[eE])'(?:[^']|'')*'")
_ESCAPED: Final = re.compile(r"[eE]'(?:[^'\\]|''|\\.)*'", re.DOTALL)
#: N'...' and _UTF8'...': what names a character set may have a hyphen in it.
_ENCODED: Final = re.compile(r"(?:[nN]|_[a-zA-Z][\w.:-]*)'(?:[^']|'')*'", re.ASCII)
_UNFINISHED: Final = {
    "'": "a string that does not end: a ' is missing",
    "`": "a name that does not end: a ` is missing",
    "/": "a comment that does not end: */ is missing",
    '"': "a double quote: strings stand in single quotes ('...'), names in backticks (`...`)",
}

#: Kinds of tokens.
WORD, QUOTED, NUMBER, STRING, UNICODE, BINARY, ESCAPED, ENCODED, OPERATOR, END = range(10)
_KINDS: Final = {
    "word": WORD,
    "quoted": QUOTED,
    "number": NUMBER,
    "string": STRING,
    "operator": OPERATOR,
}
_PREFIX_KINDS: Final = {"u": UNICODE, "x": BINARY, "e": ESCAPED}


class Token(NamedTuple):
    """A token and where it stands."""

    kind: int
    #: Words in capitals, operators as they are; empty for all others.
    word: str
    start: int
    end: int


class Tokens:
    """All tokens of a text: as lists, because a parser looks at one field of many tokens.

    The last token is the end of the text.
    """

    __slots__ = ("columns", "ends", "kinds", "lines", "starts", "text", "words")

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds: list[int] = []
        self.words: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.lines: list[int] = []
        self.columns: list[int] = []

    def __len__(self) -> int:
        return len(self.kinds)

    def __iter__(self) -> Iterator[Token]:
        return map(Token, self.kinds, self.words, self.starts, self.ends)

    def source(self, index: int) -> str:
        """The text of one token, as written."""
        return self.text[self.starts[index] : self.ends[index]]


def tokenize(text: str) -> Tokens:
    """Split a text into tokens.

    Raises:
        SqlParserError: A character begins no token, or a string, a name or a comment has no end.
    """
    tokens = Tokens(text)
    position, line, line_start = 0, 1, 0
    match_at = _TOKEN.match
    length = len(text)
    while position < length:
        match = match_at(text, position)
        if match is None:
            raise _no_token(text, position)
        group, end = match.lastgroup, match.end()
        kind = OPERATOR if group is None else _KINDS.get(group, OPERATOR)
        if group == "word" and end < length and text[end] in "'&-":
            kind, end = _prefixed(text, position, end)
        if group != "space":
            word = match.group() if kind == OPERATOR else ""
            tokens.words.append(match.group().upper() if kind == WORD else word)
            tokens.kinds.append(kind)
            tokens.starts.append(position)
            tokens.ends.append(end)
            tokens.lines.append(line)
            tokens.columns.append(position - line_start + 1)
        if group not in {"word", "operator", "number"} or kind > STRING:
            breaks = text.count("\n", position, end)
            if breaks:
                line += breaks
                line_start = text.rfind("\n", position, end) + 1
        position = end
    tokens.kinds.append(END)
    tokens.words.append("")
    tokens.starts.append(length)
    tokens.ends.append(length)
    tokens.lines.append(line)
    tokens.columns.append(length - line_start + 1)
    return tokens


def _prefixed(text: str, start: int, end: int) -> tuple[int, int]:
    """Kind and end of the token at ``start``: a string with a letter before it, or a word."""
    encoded = _ENCODED.match(text, start)
    if encoded is not None:
        return ENCODED, encoded.end()
    letter = text[start].lower()
    pattern = _ESCAPED if letter == "e" else _PREFIXED
    match = pattern.match(text, start)
    if match is None:
        if end - start == 1 and text[end] == "'" and letter in _PREFIX_KINDS:
            raise _no_token(text, end)
        return WORD, end
    return _PREFIX_KINDS[letter], match.end()


def _no_token(text: str, position: int) -> SqlParserError:
    character = text[position]
    what = _UNFINISHED.get(character, f"a character that begins nothing: {character!r}")
    return parser_error(text, position, position + 1, f"found {what}")


def parser_error(text: str, start: int, end: int, what: str) -> SqlParserError:
    """Make the error that points at a part of a text.

    Args:
        text: All of it.
        start: Index of the first character that is wrong.
        end: Index behind the last.
        what: What is wrong, in words.
    """
    line, column = line_and_column(text, start)
    where = f"SQL, line {line}, column {column}"
    return SqlParserError(f"{where}: {what}\n{excerpt(text, start, end)}", line, column)


_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL
)
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LAST_CHARACTER: Final = 0x10FFFF
_LAST_BYTE: Final = 0xFF
#: What may stand before a string after an underline.
_CHARACTER_SETS: Final = (
    *("BIG5", "GB2312", "GBK", "ISO-8859-1", "LATIN1"),
    *("UTF-16BE", "UTF-16LE", "UTF-8", "UTF16", "UTF8"),
)
_ONE_BYTE: Final = frozenset({"ISO-8859-1", "LATIN1"})
_NATIONAL: Final = "LATIN1"


def quote(value: str) -> str:
    """The string as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def string_value(kind: int, source: str, escape: str = "\\") -> str | ValueError:
    """The characters that a token of a string stands for.

    Args:
        kind: The token's kind.
        source: Its text, with quotes and prefix.
        escape: The character that begins an escape, in ``U&''``.

    Returns:
        The characters, or what is wrong with the text.
    """
    body = source[source.index("'") + 1 : -1].replace("''", "'")
    try:
        if kind == UNICODE:
            return _unicode(body, escape)
        return _ESCAPE.sub(_c_style, body) if kind == ESCAPED else body
    except ValueError as error:
        return error


def encoded_value(source: str) -> str:
    """Return the characters of ``_UTF8'...'``, or of ``N'...'``, which is in ISO-8859-1.

    Raises:
        ValueError: the character set is unknown, or has not all of the characters.
    """
    prefix, _, body = source.partition("'")
    name = prefix[1:] or _NATIONAL
    if name.upper() not in _CHARACTER_SETS:
        message = f"unknown character set '{name}'; there are {', '.join(_CHARACTER_SETS)}"
        raise ValueError(message)
    value = body[:-1].replace("''", "'")
    if name.upper() in _ONE_BYTE and any(ord(each) > _LAST_BYTE for each in value):
        message = f"the character set {name} has not all of these characters"
        raise ValueError(message)
    return value


def _unicode(body: str, escape: str) -> str:
    if len(escape) != 1 or escape in "'+\" " or escape in "0123456789abcdefABCDEF":
        message = "UESCAPE takes one character, no digit, letter from a to f, quote, plus or space"
        raise ValueError(message)
    sign = re.escape(escape)
    pattern = f"{sign}(?:([0-9a-fA-F]{{4}})|\\+([0-9a-fA-F]{{6}})|({sign})|(.|$))"

    def character(match: re.Match[str]) -> str:
        if match[3]:
            return escape
        if not (match[1] or match[2]):
            message = f"{escape} begins {escape}XXXX or {escape}+XXXXXX with hexadecimal digits"
            raise ValueError(message)
        return _character(match[1] or match[2], 16)

    text = re.sub(pattern, character, body, flags=re.DOTALL)
    try:
        # Two halves that make one character beyond the first 65,536.
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        message = "half of a pair of surrogates stands alone"
        raise ValueError(message) from None


def _c_style(match: re.Match[str]) -> str:
    short, four, eight, octal, letter = match.groups()
    digits = short or four or eight
    if digits:
        return _character(digits, 16)
    return _character(octal, 8) if octal else _LETTERS.get(letter, letter)


def _character(digits: str, base: int) -> str:
    code = int(digits, base)
    if code > _LAST_CHARACTER:
        message = f"there is no character {digits}"
        raise ValueError(message)
    return chr(code)


_T = TypeVar("_T")

#: What is expected where no keyword or sign is: it is said as it stands here.
A_NAME: Final = "a name"
A_STRING: Final = "a string"
A_NUMBER: Final = "a whole number"
AN_EXPRESSION: Final = "an expression"
A_TYPE: Final = "a type"
A_QUERY: Final = "a query"
THE_END: Final = "the end of the statement"
CATEGORIES: Final = frozenset({A_NAME, A_STRING, A_NUMBER, AN_EXPRESSION, A_TYPE, A_QUERY, THE_END})
#: Longer names are refused, as in Flink.
MAX_NAME_LENGTH: Final = 256
#: So much of a token is repeated in an error, in characters.
_SHOWN: Final = 40
_STRINGS: Final = frozenset({STRING, UNICODE, ESCAPED})


class TokenStream:
    """Tokens of a text, and how many have been taken."""

    __slots__ = ("index", "kinds", "tokens", "words")

    def __init__(self, text: str) -> None:
        self.tokens: Tokens = tokenize(text)
        self.words = self.tokens.words
        self.kinds = self.tokens.kinds
        self.index = 0

    # --- looking

    def at(self, *words: str) -> bool:
        """Return whether these words or signs come next."""
        index = self.index
        return self.words[index : index + len(words)] == list(words)

    def peek(self, distance: int = 1) -> str:
        """The word or sign so far ahead; empty behind the end."""
        index = self.index + distance
        return self.words[index] if index < len(self.words) else ""

    def peek_kind(self, distance: int = 1) -> int:
        """The kind of the token so far ahead."""
        index = self.index + distance
        return self.kinds[index] if index < len(self.kinds) else END

    def at_end(self) -> bool:
        """Return whether all tokens have been taken."""
        return self.kinds[self.index] == END

    def at_name(self, distance: int = 0) -> bool:
        """Whether a name stands so far ahead: in backticks, or a word that is not reserved."""
        kind = self.peek_kind(distance)
        return kind == QUOTED or (kind == WORD and self.peek(distance) not in RESERVED)

    # --- taking

    def accept(self, *words: str) -> bool:
        """Take these words or signs if they come next, all of them or none."""
        if len(words) == 1:
            if self.words[self.index] != words[0]:
                return False
        elif not self.at(*words):
            return False
        self.index += len(words)
        return True

    def accept_any(self, *words: str) -> str:
        """Take one of these words or signs if it comes next; empty if none does."""
        word = self.words[self.index]
        if word and word in words:
            self.index += 1
            return word
        return ""

    def expect(self, *words: str) -> None:
        """Take these words or signs; anything else is an error."""
        for word in words:
            if not self.accept(word):
                self.fail()

    def expect_any(self, *words: str) -> str:
        """Take one of these words or signs; anything else is an error."""
        return self.accept_any(*words) or self.fail()

    def tried(self, what: str) -> None:
        """Tell what could have come next, for the error; nothing unless it is recorded."""

    def suggest(self, words: frozenset[str]) -> None:
        """Tell which words could have come next but are too many to list."""

    # --- names, strings, numbers

    def name(self) -> Name:
        """Take a name: in backticks, or a word that is not reserved."""
        if not self.at_name():
            self.tried(A_NAME)
            self.fail()
        return self.any_name()

    def any_name(self) -> Name:
        """Take a name, reserved words too."""
        index = self.index
        kind = self.kinds[index]
        if kind == WORD:
            value = self.tokens.source(index)
        elif kind == QUOTED:
            value = self.tokens.source(index)[1:-1].replace("``", "`")
        else:
            self.tried(A_NAME)
            self.fail()
        if not 0 < len(value) <= MAX_NAME_LENGTH:
            self.refuse(f"a name has 1 to {MAX_NAME_LENGTH} characters, this one {len(value)}")
        self.index += 1
        return Name(value, kind == QUOTED, position=self.span(index))

    def identifier(self) -> Identifier:
        """Take names with dots between them."""
        start = self.index
        parts = [self.name()]
        while self.accept("."):
            parts.append(self.name())
        return Identifier(tuple(parts), position=self.span(start))

    def at_string(self) -> bool:
        """Return whether a string comes next."""
        return self.kinds[self.index] in _STRINGS

    def string(self) -> str:
        """Take a string in single quotes, also one that goes on in another line."""
        if not self.at_string():
            self.tried(A_STRING)
            self.fail()
        parts = [self._one_string()]
        while self.kinds[self.index] == STRING:
            if self.tokens.lines[self.index] == self.tokens.lines[self.index - 1]:
                self.refuse("two strings in one line: something is missing between them")
            parts.append(self._one_string())
        return "".join(parts)

    def _one_string(self) -> str:
        index, escape = self.index, "\\"
        self.index += 1
        if self.kinds[index] == UNICODE and self.accept("UESCAPE"):
            escape = self._one_string() if self.at_string() else self.fail_for(A_STRING)
        value = string_value(self.kinds[index], self.tokens.source(index), escape)
        return self.refuse_token(index, str(value)) if isinstance(value, ValueError) else value

    def integer(self) -> int:
        """Take a number without point and sign."""
        text = self.tokens.source(self.index)
        if self.kinds[self.index] != NUMBER or not text.isascii() or not text.isdigit():
            self.fail_for(A_NUMBER)
        self.index += 1
        return int(text)

    # --- lists

    def listed(self, item: Callable[[], _T]) -> tuple[_T, ...]:
        """Take items with commas between them, one at least."""
        items = [item()]
        while self.accept(","):
            items.append(item())
        return tuple(items)

    def parenthesized(self, item: Callable[[], _T]) -> tuple[_T, ...]:
        """Take items with commas between them, in parentheses, one at least."""
        self.expect("(")
        items = self.listed(item)
        self.expect(")")
        return items

    def by(self, word: str, item: Callable[[], _T]) -> tuple[_T, ...]:
        """Take the items of ``PARTITION BY`` or ``ORDER BY`` if it comes next."""
        if not self.accept(word):
            return ()
        self.expect("BY")
        return self.listed(item)

    # --- places and errors

    def span(self, start: int) -> Position:
        """Where the tokens from ``start`` to the last one taken stand."""
        tokens = self.tokens
        return Position(
            tokens.lines[start],
            tokens.columns[start],
            tokens.starts[start],
            tokens.ends[self.index - 1],
        )

    def fail_for(self, what: str) -> NoReturn:
        """Raise: the next token is not what is expected here."""
        self.tried(what)
        self.fail()

    def fail(self) -> NoReturn:
        """Raise: the next token cannot stand here."""
        raise self.error_at(self.index, f"found {self.described(self.index)}")

    def refuse(self, what: str) -> NoReturn:
        """Raise: the next token is wrong for this reason."""
        self.refuse_token(self.index, what)

    def refuse_token(self, index: int, what: str) -> NoReturn:
        """Raise: this token is wrong for this reason."""
        raise self.error_at(index, what) from None

    def refuse_span(self, position: Position, what: str) -> NoReturn:
        """Raise: this part of the text is wrong for this reason."""
        raise parser_error(self.tokens.text, position.start, position.end, what) from None

    def unsupported(self, what: str, instead: str = "") -> NoReturn:
        """Raise: Flink has what begins at the next token, and Millstream has not.

        Args:
            what: Its name, as in "TABLESAMPLE".
            instead: What to write instead, as a clause.
        """
        tokens, index = self.tokens, self.index
        line, column = line_and_column(tokens.text, tokens.starts[index])
        hint = f"; {instead}" if instead else ""
        lines = excerpt(tokens.text, tokens.starts[index], tokens.ends[index])
        message = f"SQL, line {line}, column {column}: {what} is not supported{hint}\n{lines}"
        raise UnsupportedSqlError(message)

    def error_at(self, index: int, what: str) -> SqlParserError:
        """Make the error for a token."""
        tokens = self.tokens
        return parser_error(tokens.text, tokens.starts[index], tokens.ends[index], what)

    def described(self, index: int) -> str:
        """A token in words."""
        kind = self.kinds[index]
        if kind == END:
            return "the end of the text"
        masked = masked_statement(self.tokens.text)
        source = _shortened(masked[self.tokens.starts[index] : self.tokens.ends[index]])
        if kind in _STRINGS or kind in {BINARY, ENCODED}:
            return f"the string {source}"
        if kind == NUMBER:
            return f"the number {source}"
        return source if kind in {WORD, QUOTED} else f"'{source}'"


def _shortened(source: str) -> str:
    """The beginning of a token, as long as it fits into a sentence."""
    first = source.split("\n", 1)[0]
    shown = first[:_SHOWN]
    return shown if shown == source else f"{shown}..."


_SET: Final = ("STATEMENT", "SET")


class StatementText(NamedTuple):
    """A statement of a script."""

    #: The script as far as the statement's end, all before it blank, so that places in it are
    #: places in the script; without the semicolon.
    text: str
    #: The line in which it begins, from 1.
    line: int

    @property
    def statement(self) -> str:
        """The statement alone."""
        return self.text.strip()


def split_statements(script: str) -> tuple[StatementText, ...]:
    """The statements of a script, empty ones left out.

    Args:
        script: Statements with semicolons between them; the last may have none.

    Raises:
        SqlParserError: A string, a name or a comment has no end.
    """
    tokens = tokenize(script)
    found = []
    first = 0
    for end in _ends(tokens):
        if end > first:
            start = tokens.starts[first]
            before = "".join(each if each in "\n\t" else " " for each in script[:start])
            text = before + script[start : tokens.ends[end - 1]]
            found.append(StatementText(text, tokens.lines[first]))
        first = end + 1
    return tuple(found)


def is_complete(text: str) -> bool:
    """Return whether all statements of a text have their semicolons.

    Args:
        text: What has been typed so far.
    """
    try:
        tokens = tokenize(text)
    except SqlParserError as error:
        # A character that begins nothing will not be healed by typing on.
        return "does not end" not in str(error).split("\n", 1)[0]
    last = len(tokens) - 1
    return last > 0 and tokens.words[last - 1] == ";" and last - 1 in _ends(tokens)


def _ends(tokens: Tokens) -> list[int]:
    """Indexes of the semicolons that end statements, and of the end of the text."""
    ends = []
    in_set = False
    words = tokens.words
    for index, word in enumerate(words):
        if word == "STATEMENT" and tuple(words[index : index + 2]) == _SET:
            in_set = in_set or words[index - 1 : index] == ["BEGIN"] or _begins(words, index)
        elif word == "END" and words[index - 1 : index] == [";"]:
            in_set = False
        elif word == ";" and not in_set:
            ends.append(index)
    ends.append(len(tokens) - 1)
    return ends


def _begins(words: list[str], index: int) -> bool:
    return index + 2 < len(words) and words[index + 2] == "BEGIN"
