"""The HTTP door: `omnigraph serve`. Thin: every verb is a call of the facade below."""
