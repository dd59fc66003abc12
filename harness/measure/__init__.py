"""What consistency costs: measurements in a guest with tools, and what they come to."""
