"""The one base class of every value that crosses a process boundary."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Wire(BaseModel):
    """Frozen, closed, snake_case in Python and camelCase on the wire; a literal under a field is its documentation."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        # JSON has neither, so what holds one could be read and not be stored.
        allow_inf_nan=False,
    )

    def dump(self) -> dict[str, object]:
        """Return plain JSON data in wire spelling, without unset optional fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
