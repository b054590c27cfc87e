"""What operations cost, tested like behaviour: requests by kind and key class, and how many had to wait in turn."""
