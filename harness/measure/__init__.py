"""What consistency costs: measurements, most of them in the guest with tools."""
